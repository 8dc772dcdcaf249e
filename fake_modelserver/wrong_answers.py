"""What wrong and odd model servers answer in place of what the pod would: functions of a request, or of its JSON.

Where they give None, the pod answers by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from fake_modelserver.messages import Request, Response, error_response, json_response

Script = Callable[[Request], Response | None]


def at_path(path: str, change: Callable[[Any], Response | None]) -> Script:
    """Answers requests to a path that are whole JSON, unless `change` gives None."""

    def answer(request: Request) -> Response | None:
        if request.path != path:
            return None
        try:
            body = request.json
        except ValueError:
            body = None
        return change(body)

    return answer


COMPLETION: dict[str, Any] = {
    "id": "cmpl-1", "object": "text_completion", "created": 1_700_000_000, "model": "small-model",
    "choices": [{"index": 0, "text": "word", "finish_reason": "stop", "logprobs": None}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 1, "total_tokens": 1001},
}  # fmt: skip
"""Right for a prompt of any length that the suite sends."""


def plainly(**changes: Any) -> Script:
    """Answers plain completions with one object that has been changed."""

    def change(body: Any) -> Response | None:
        return json_response(200, {**COMPLETION, **changes}) if _is_plain(body) else None

    return at_path("/v1/completions", change)


def _is_plain(body: Any) -> bool:
    right = isinstance(body, dict) and not body.get("stream") and body.get("model") == "small-model"
    return right and "prompt" in body


def refuses_long_prompts(words: int, *, streamed: bool = False) -> Script:
    """Refuses longer prompts with status 400, or `streamed` with an error event after status 200."""

    def change(body: Any) -> Response | None:
        prompt = body.get("prompt") if isinstance(body, dict) else None
        if not isinstance(prompt, str) or len(prompt.split()) <= words:
            return None
        message = f"This model's maximum context length is {words} tokens."
        if not (streamed and body.get("stream")):
            return error_response(400, message, kind="BadRequestError", param="prompt")
        event = b"data: " + json_response(200, {"error": {"message": message, "code": 400}}).body + b"\n\n"
        return Response(headers=((b"content-type", b"text/event-stream"),), chunks=[event, b"data: [DONE]\n\n"])

    return at_path("/v1/completions", change)


def writes_nothing(body: Any) -> Response | None:
    """As many tokens as were asked for, and no text of them."""
    if not _is_plain(body):
        return None
    tokens = body.get("max_tokens") or 16
    choice = {**COMPLETION["choices"][0], "text": "", "finish_reason": "length"}
    return json_response(200, {**COMPLETION, "choices": [choice], "usage": _usage(tokens)})


def counts_one_token(body: Any) -> Response | None:
    """A text of more words than a token can be, and of one token by its usage."""
    if not _is_plain(body):
        return None
    choice = {**COMPLETION["choices"][0], "text": "word " * 20}
    return json_response(200, {**COMPLETION, "choices": [choice]})


def has_one_id(body: Any) -> Response | None:
    """The same right answer to each request, with as many tokens as it may have."""
    return json_response(200, _answered(body)) if _is_plain(body) else None


def caches_too_much(body: Any) -> Response | None:
    """An answer of which more tokens of the prompt were cached than it has."""
    if not _is_plain(body):
        return None
    answer = {**_answered(body), "id": f"cmpl-{next(_NUMBERS)}"}
    details = {"cached_tokens": answer["usage"]["prompt_tokens"] + 1}
    return json_response(200, {**answer, "usage": {**answer["usage"], "prompt_tokens_details": details}})


_NUMBERS = itertools.count(1)


def _answered(body: Any) -> dict[str, Any]:
    tokens = body.get("max_tokens") or 16
    choice = {**COMPLETION["choices"][0], "text": "word " * tokens, "finish_reason": "length"}
    return {**COMPLETION, "choices": [choice], "usage": _usage(tokens)}


def takes_anything(body: Any) -> Response | None:
    """Serves a request without a prompt, or that is no JSON."""
    wrong = not isinstance(body, dict) or "prompt" not in body
    return json_response(200, COMPLETION) if wrong else None


def bare_error(body: Any) -> Response | None:
    """Refuses such a request in plain text."""
    wrong = not isinstance(body, dict) or "prompt" not in body
    headers = ((b"content-type", b"text/plain"),)
    return Response(status=400, headers=headers, body=b"no") if wrong else None


def chats_without_messages(body: Any) -> Response | None:
    """Serves a chat without messages."""
    if isinstance(body, dict) and "messages" not in body:
        message = {"role": "assistant", "content": "hello"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return json_response(200, {**COMPLETION, "object": "chat.completion", "choices": [choice]})
    return None


def gives_details(body: Any) -> Response | None:
    """Errors as FastAPI has them by default: of two kinds."""
    if not isinstance(body, dict):
        return json_response(400, {"detail": "There was an error parsing the body"})
    if "prompt" not in body:
        missing = {"type": "missing", "loc": ["body", "prompt"], "msg": "Field required", "input": {}}
        return json_response(422, {"detail": [missing]})
    return None


def saying(most: int = 1, **message: Any) -> Script:
    """Answers plain chats with this message, which has at most so many tokens."""

    def change(body: Any) -> Response | None:
        plain = isinstance(body, dict) and "messages" in body and not body.get("stream")
        if plain and body.get("model") == "small-model":
            tokens = min(most, body.get("max_tokens") or body.get("max_completion_tokens") or most)
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = {**COMPLETION, "object": "chat.completion", "choices": [choice], "usage": _usage(tokens)}
            return json_response(200, body)
        return None

    return at_path("/v1/chat/completions", change)


def thinks(body: Any) -> Response | None:
    """As a model that reasons, with so few tokens that its answer has not begun; the first of them make no text."""
    if not isinstance(body, dict) or "messages" not in body or body.get("stream") or body.get("model") != "small-model":
        return None
    tokens = body.get("max_tokens") or body.get("max_completion_tokens") or 16
    message = {"role": "assistant", "content": None, "reasoning": "well, " * tokens if tokens > 4 else None}
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    return json_response(200, {**COMPLETION, "object": "chat.completion", "choices": [choice], "usage": _usage(tokens)})


def _usage(tokens: int) -> dict[str, int]:
    prompt: int = COMPLETION["usage"]["prompt_tokens"]
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
