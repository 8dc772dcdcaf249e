"""What a pod answers to a completion: a short sentence that names the pod, and words after it if more is asked for.

A token is a word. Same request, same answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fake_modelserver.messages import dumped

CREATED = 1_700_000_000
"""`created` of everything: a constant, so that answers can be compared."""

DONE = b"data: [DONE]\n\n"
_TEXT = "Tokens follow one another, naïve and déjà vu, until the answer is as long as it was meant to be …"
_MORE = tuple(_TEXT.split())
_HERE = "\0"
_MARK = dumped(_HERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a request asks for. `prompt` are its tokens; `tokens` is the length that the answer has at most."""

    model: str
    prompt: Sequence[str | int]
    tokens: int | None
    ignore_end: bool = False
    stream: bool = False
    include_usage: bool = False


@dataclass(slots=True, kw_only=True)
class Answer:
    """An answer: of `length` tokens, to a `chat` or a completion. `cached` prompt tokens are told if they are known."""

    call: Call
    chat: bool
    id: str
    words: tuple[str, ...]
    length: int
    finish: str
    cached: int | None = None

    @classmethod
    def to(
        cls, call: Call, body: bytes, pod: str, *, chat: bool, adapter: str | None = None, natural: int | None = None
    ) -> Answer:
        """The answer of `pod` to `call`, which came as `body`, by `adapter`; `natural` is how long it is by itself."""
        by = f" with adapter {adapter}" if adapter else ""
        words = tuple(f"This answer comes from pod {pod}{by}.".split())
        whole = len(words) if natural is None else natural
        if call.ignore_end and call.tokens is not None:
            whole = max(whole, call.tokens)
        length = whole if call.tokens is None else min(whole, call.tokens)
        ended = length == whole and not (call.ignore_end and length == call.tokens)
        digest = hashlib.sha256(body).hexdigest()[:24]
        return cls(
            call=call,
            chat=chat,
            id=("chatcmpl-" if chat else "cmpl-") + digest,
            words=words,
            length=length,
            finish="stop" if ended else "length",
        )

    def token(self, index: int) -> str:
        """The token at `index`."""
        own = len(self.words)
        word = self.words[index] if index < own else _MORE[(index - own) % len(_MORE)]
        return word if index == 0 else f" {word}"

    def whole(self) -> dict[str, Any]:
        """The answer as one object."""
        text = "".join([self.token(index) for index in range(self.length)])
        choice: dict[str, Any] = {"index": 0}
        choice |= {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice |= {"logprobs": None, "finish_reason": self.finish}
        return self.shell([choice], streamed=False) | {"usage": self.usage()}

    def events(self) -> list[bytes]:
        """All server-sent events of the streamed form."""
        streamed = Streamed(self)
        tokens = [streamed.token(index) for index in range(self.length)]
        return [*streamed.begin(), *tokens, *streamed.end()]

    def usage(self) -> dict[str, Any]:
        """The usage."""
        prompt = len(self.call.prompt)
        usage = {"prompt_tokens": prompt, "completion_tokens": self.length, "total_tokens": prompt + self.length}
        return usage if self.cached is None else {**usage, "prompt_tokens_details": {"cached_tokens": self.cached}}

    def shell(self, choices: list[dict[str, Any]], *, streamed: bool) -> dict[str, Any]:
        """The object of the API around `choices`."""
        kind = ("chat.completion.chunk" if streamed else "chat.completion") if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": CREATED, "model": self.call.model, "choices": choices}


class Streamed:
    """The events of one answer, each made when it is due: all of one kind differ in the token alone."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        piece: dict[str, Any] = {"delta": {"content": _HERE}} if answer.chat else {"text": _HERE}
        self._before, self._after = self._event({**piece, "finish_reason": None}).split(_MARK)

    def begin(self) -> list[bytes]:
        """What comes before the first token."""
        if not self._answer.chat:
            return []
        return [self._event({"delta": {"role": "assistant", "content": ""}, "finish_reason": None})]

    def token(self, index: int) -> bytes:
        """The event of the token at `index`; the last one says how the answer ends."""
        answer = self._answer
        text = answer.token(index)
        if index < answer.length - 1:
            return self._before + dumped(text) + self._after
        piece = {"delta": {"content": text}} if answer.chat else {"text": text}
        return self._event({**piece, "finish_reason": answer.finish})

    def end(self) -> list[bytes]:
        """What comes after the last token."""
        answer = self._answer
        if not answer.call.include_usage:
            return [DONE]
        last = answer.shell([], streamed=True) | {"usage": answer.usage()}
        return [b"data: %s\n\n" % dumped(last), DONE]

    def _event(self, piece: dict[str, Any]) -> bytes:
        answer = self._answer
        # With usage asked for, every chunk has the member: null until the last, which has no choices.
        usage: dict[str, Any] = {"usage": None} if answer.call.include_usage else {}
        value = answer.shell([{"index": 0, "logprobs": None, **piece}], streamed=True) | usage
        return b"data: %s\n\n" % dumped(value)
