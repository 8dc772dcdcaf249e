"""The inference API of a pod: completions, chat completions, models (model server protocol, "Inference API Protocol").

The answer is a short sentence that names the pod, cut to `max_tokens`; a token is a word. Same request, same answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fake_modelserver.messages import Request, Response, error_response, json_response
from fake_modelserver.reply import event

CREATED = 1_700_000_000
"""`created` of everything: a constant, so that answers can be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What the pod `pod` serves: base `models`, LoRA `adapters`, and whether any other name passes too."""

    pod: str
    models: tuple[str, ...]
    adapters: Collection[str]
    any_model: bool = False

    def knows(self, model: str) -> bool:
        """True if a request may name `model`."""
        return self.any_model or model in self.models or model in self.adapters


class _RefusalError(Exception):
    """A request that the API refuses."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        self.response = error_response(status, message, kind=kind, param=param)


def models(catalogue: Catalogue) -> Response:
    """GET /v1/models: base models, then adapters with the base model as `parent`."""
    base = catalogue.models[0]
    parents = dict.fromkeys(catalogue.models) | dict.fromkeys(sorted(catalogue.adapters), base)
    data = [
        {"id": name, "object": "model", "created": CREATED, "owned_by": "fake", "root": name, "parent": parent}
        for name, parent in parents.items()
    ]
    return json_response(200, {"object": "list", "data": data})


def model_of(request: Request) -> str | None:
    """The `model` that a JSON body names, None if it names none."""
    if not request.body:
        return None
    try:
        found = request.json
    except ValueError:
        return None
    model = found.get("model") if isinstance(found, dict) else None
    return model if isinstance(model, str) else None


def completions(request: Request, catalogue: Catalogue) -> Response:
    """POST /v1/completions."""
    return _generate(request, catalogue, chat=False)


def chat_completions(request: Request, catalogue: Catalogue) -> Response:
    """POST /v1/chat/completions."""
    return _generate(request, catalogue, chat=True)


def _generate(request: Request, catalogue: Catalogue, *, chat: bool) -> Response:
    try:
        call = _parse(request, chat=chat)
        if not catalogue.knows(call.model):
            raise _RefusalError(
                f"The model `{call.model}` does not exist.", status=404, kind="NotFoundError", param="model"
            )
    except _RefusalError as refusal:
        return refusal.response
    answer = _Answer.to(call, request.body, catalogue.pod, chat=chat)
    if call.stream:
        return Response(headers=((b"content-type", b"text/event-stream; charset=utf-8"),), chunks=answer.events())
    return json_response(200, answer.whole())


# -- the request -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    model: str
    prompt_tokens: int
    max_tokens: int | None
    stream: bool
    include_usage: bool


def _parse(request: Request, *, chat: bool) -> _Call:
    try:
        found = request.json
    except ValueError as problem:
        raise _RefusalError(f"The body is not JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise _RefusalError("The body is not a JSON object.")
    model = found.get("model")
    if not isinstance(model, str) or not model:
        raise _RefusalError("`model` is missing or not a string.", param="model")
    max_tokens = found.get("max_completion_tokens", found.get("max_tokens")) if chat else found.get("max_tokens")
    if max_tokens is not None and (not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1):
        raise _RefusalError("`max_tokens` is not a whole number from 1.", param="max_tokens")
    stream = found.get("stream") or False
    if not isinstance(stream, bool):
        raise _RefusalError("`stream` is not true or false.", param="stream")
    options = found.get("stream_options")
    if options is not None and (not stream or not isinstance(options, Mapping)):
        raise _RefusalError("`stream_options` is an object, and only allowed when streaming.", param="stream_options")
    return _Call(
        model=model,
        prompt_tokens=_chat_tokens(found.get("messages")) if chat else _prompt_tokens(found.get("prompt")),
        max_tokens=max_tokens,
        stream=stream,
        include_usage=bool((options or {}).get("include_usage")),
    )


def _prompt_tokens(prompt: Any) -> int:
    match prompt:
        case str():
            return len(prompt.split())
        case [*items] if items and all(isinstance(item, str) for item in items):
            return sum(len(item.split()) for item in items)
        case [*items] if items and all(isinstance(item, int | list) for item in items):
            return sum(len(item) if isinstance(item, list) else 1 for item in items)
    raise _RefusalError("`prompt` is missing, or neither a string nor a list of strings or tokens.", param="prompt")


def _chat_tokens(messages: Any) -> int:
    if not isinstance(messages, list) or not messages:
        raise _RefusalError("`messages` is missing or empty.", param="messages")
    tokens = 0
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise _RefusalError(f"`messages[{index}]` has no `role`.", param="messages")
        match message.get("content"):
            case None:
                pass
            case str() as text:
                tokens += len(text.split())
            case [*parts] if all(isinstance(part, Mapping) for part in parts):
                tokens += sum(len(str(part.get("text", "")).split()) for part in parts)
            case _:
                raise _RefusalError(f"`messages[{index}].content` is neither text nor parts.", param="messages")
    return tokens


# -- the answer --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    call: _Call
    chat: bool
    id: str
    tokens: tuple[str, ...]
    finish: str

    @classmethod
    def to(cls, call: _Call, body: bytes, pod: str, *, chat: bool) -> _Answer:
        words = f"This answer comes from pod {pod}.".split()
        kept = words[: call.max_tokens]
        return cls(
            call=call,
            chat=chat,
            id=("chatcmpl-" if chat else "cmpl-") + hashlib.sha256(body).hexdigest()[:24],
            tokens=tuple(word if index == 0 else f" {word}" for index, word in enumerate(kept)),
            finish="stop" if len(kept) == len(words) else "length",
        )

    def whole(self) -> dict[str, Any]:
        text = "".join(self.tokens)
        choice: dict[str, Any] = {"index": 0}
        choice |= {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        choice |= {"logprobs": None, "finish_reason": self.finish}
        return self._object([choice], streamed=False) | {"usage": self._usage()}

    def events(self) -> Sequence[bytes]:
        """The server-sent events of the streamed form, the last one `[DONE]`."""
        deltas: list[dict[str, Any]] = []
        if self.chat:
            deltas.append({"delta": {"role": "assistant", "content": ""}, "finish_reason": None})
        for token in self.tokens:
            piece = {"delta": {"content": token}} if self.chat else {"text": token}
            deltas.append({**piece, "finish_reason": None})
        deltas[-1]["finish_reason"] = self.finish
        # With usage asked for, every chunk has the member: null until the last, which has no choices.
        usage: dict[str, Any] = {"usage": None} if self.call.include_usage else {}
        values = [self._object([{"index": 0, "logprobs": None, **delta}], streamed=True) | usage for delta in deltas]
        if usage:
            values.append(self._object([], streamed=True) | {"usage": self._usage()})
        encoded = [json.dumps(value, separators=(",", ":")).encode() for value in values]
        return [event(data) for data in (*encoded, b"[DONE]")]

    def _object(self, choices: list[dict[str, Any]], *, streamed: bool) -> dict[str, Any]:
        kind = ("chat.completion.chunk" if streamed else "chat.completion") if self.chat else "text_completion"
        return {"id": self.id, "object": kind, "created": CREATED, "model": self.call.model, "choices": choices}

    def _usage(self) -> dict[str, int]:
        prompt, completion = self.call.prompt_tokens, len(self.tokens)
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
