"""The inference API of a pod: completions, chat completions, models, adapters.

Model server protocol, "Inference API Protocol" and "LoRA Adapter Serving", with the differences between engines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fake_modelserver.answer import CREATED, Answer, Call
from fake_modelserver.engines import Generation, generation
from fake_modelserver.engines.generation import Engine
from fake_modelserver.messages import Request, Response, error_response, json_response

VLLM = generation(Engine.VLLM)

_MODEL_LENGTH = 131_072
_FIELDS = frozenset({
    "model", "prompt", "messages", "max_tokens", "max_completion_tokens", "stream", "stream_options", "temperature",
    "top_p", "top_k", "n", "stop", "seed", "user", "presence_penalty", "frequency_penalty", "logprobs", "suffix",
    "top_logprobs", "logit_bias", "echo", "best_of", "ignore_eos", "min_tokens", "tools", "tool_choice",
})  # fmt: skip
"""What an engine knows that refuses other fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What the pod `pod` serves: base `models`, LoRA `adapters`, and whether any other name passes too."""

    pod: str
    models: tuple[str, ...]
    adapters: Collection[str]
    any_model: bool = False
    kind: Generation = VLLM

    def adapter(self, model: str) -> str | None:
        """The adapter that a request for `model` is for, None for the base model. Raises `RefusalError`."""
        base, colon, name = model.partition(":")
        if self.kind.adapter_names == "base:name" and colon and base in self.models:
            if name in self.adapters:
                return name
            raise RefusalError(f"The adapter `{name}` is not loaded.", param="model")
        if model in self.adapters and self.kind.adapter_names == "name":
            return model
        if model in self.models or self.any_model or not self.kind.names_checked:
            return None
        raise RefusalError(f"The model `{model}` does not exist.", status=404, kind="NotFoundError", param="model")


class RefusalError(Exception):
    """A request that the API refuses. `invalid`: it does not validate."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.kind, self.param = message, status, kind, param

    def response(self, kind: Generation) -> Response:
        """The answer in the form of the engine."""
        shape = kind.invalid if self.status == 400 else kind.errors
        return error_response(self.status, self.message, kind=self.kind, param=self.param, shape=shape)


def models(catalogue: Catalogue) -> Response:
    """GET /v1/models: base models, then adapters with the base model as `parent`, if the engine lists them."""
    adapters = () if catalogue.kind.adapter_names == "none" else sorted(catalogue.adapters)
    data = [card(catalogue, name) for name in catalogue.models]
    data += [card(catalogue, name, parent=catalogue.models[0]) for name in adapters]
    return json_response(200, {"object": "list", "data": data})


def card(catalogue: Catalogue, name: str, *, parent: str | None = None) -> dict[str, Any]:
    """One entry of the list of models."""
    root = name if parent is None else f"/adapters/{name}"
    common = {"id": name, "object": "model", "created": CREATED, "owned_by": catalogue.kind.owned_by}
    return {**common, "root": root, "parent": parent, "max_model_len": None if parent else _MODEL_LENGTH}


def model(catalogue: Catalogue, name: str) -> Response:
    """GET /v1/models/NAME: the base models only."""
    if name not in catalogue.models:
        refusal = RefusalError(f"The model `{name}` does not exist.", status=404, kind="NotFoundError", param="model")
        return refusal.response(catalogue.kind)
    return json_response(200, card(catalogue, name))


def model_of(request: Request) -> str | None:
    """The `model` that a JSON body names, None if it names none."""
    if not request.body:
        return None
    try:
        found = request.json
    except ValueError:
        return None
    name = found.get("model") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


Generate = Callable[[Answer, str | None], Response]
"""Answers with tokens as they are made: the answer, and the adapter that makes it."""


def completions(
    request: Request,
    catalogue: Catalogue,
    *,
    chat: bool = False,
    natural: int | None = None,
    generate: Generate | None = None,
) -> Response:
    """POST /v1/completions, or with `chat` /v1/chat/completions.

    `natural` is the length of an answer that nothing limits. Without `generate` all of it is there at once.
    """
    try:
        call = parse(request, chat=chat, extra_fields=catalogue.kind.extra_fields)
        adapter = catalogue.adapter(call.model)
        answer = Answer.to(call, request.body, catalogue.pod, chat=chat, adapter=adapter, natural=natural)
        if generate is not None:
            return generate(answer, adapter)
    except RefusalError as refusal:
        return refusal.response(catalogue.kind)
    if call.stream:
        return Response(headers=EVENTS, chunks=answer.events())
    return json_response(200, answer.whole())


EVENTS = ((b"content-type", b"text/event-stream; charset=utf-8"),)


# -- adapters ----------------------------------------------------------------------------------------------------------


def adapter_change(request: Request, catalogue: Catalogue, *, load: bool) -> tuple[Response, str | None]:
    """Load or unload an adapter: the answer, and the name of the adapter if it succeeded."""
    try:
        found = _object(request)
        name = found.get("lora_name")
        if not isinstance(name, str) or not name or "," in name:
            raise RefusalError("`lora_name` is missing or not a name.", param="lora_name")
        if load and not isinstance(found.get("lora_path"), str):
            raise RefusalError("`lora_path` is missing or not a string.", param="lora_path")
        if load and name in catalogue.adapters:
            raise RefusalError(f"The adapter `{name}` is loaded already.", kind="InvalidUserInput")
        if not load and name not in catalogue.adapters:
            raise RefusalError(f"The adapter `{name}` is not loaded.", status=404, kind="NotFoundError")
    except RefusalError as refusal:
        return refusal.response(catalogue.kind), None
    if catalogue.kind.engine is Engine.SGLANG:
        return json_response(200, {"success": True, "error_message": ""}), name
    text = f"Success: LoRA adapter '{name}' {'added' if load else 'removed'}."
    return Response(headers=((b"content-type", b"text/plain; charset=utf-8"),), body=text.encode()), name


# -- the request -------------------------------------------------------------------------------------------------------


def parse(request: Request, *, chat: bool, extra_fields: bool = True) -> Call:
    """What a request for a completion asks for. Raises `RefusalError`."""
    found = _object(request)
    if not extra_fields and (unknown := sorted(set(found) - _FIELDS)):
        raise RefusalError(f"Unknown field: {unknown[0]!r}.", param=unknown[0])
    model = found.get("model")
    if not isinstance(model, str) or not model:
        raise RefusalError("`model` is missing or not a string.", param="model")
    tokens = found.get("max_completion_tokens", found.get("max_tokens")) if chat else found.get("max_tokens")
    if tokens is not None and (not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1):
        raise RefusalError("`max_tokens` is not a whole number from 1.", param="max_tokens")
    if tokens is not None and tokens > _MODEL_LENGTH:
        raise RefusalError(f"`max_tokens` is over {_MODEL_LENGTH}, the length of the model.", param="max_tokens")
    stream = found.get("stream") or False
    if not isinstance(stream, bool):
        raise RefusalError("`stream` is not true or false.", param="stream")
    options = found.get("stream_options")
    if options is not None and (not stream or not isinstance(options, Mapping)):
        raise RefusalError("`stream_options` is an object, and only allowed when streaming.", param="stream_options")
    return Call(
        model=model,
        prompt=_chat_tokens(found.get("messages")) if chat else _prompt_tokens(found.get("prompt")),
        tokens=tokens,
        ignore_end=found.get("ignore_eos") is True,
        stream=stream,
        include_usage=bool((options or {}).get("include_usage")),
    )


def _object(request: Request) -> dict[str, Any]:
    try:
        found = request.json
    except ValueError as problem:
        raise RefusalError(f"The body is not JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise RefusalError("The body is not a JSON object.")
    return found


def _prompt_tokens(prompt: Any) -> list[str | int]:
    match prompt:
        case str():
            return [*prompt.split()]
        case [*items] if items and all(isinstance(item, str) for item in items):
            return [word for item in items for word in item.split()]
        case [*items] if items and all(isinstance(item, int | list) for item in items):
            return [token for item in items for token in (item if isinstance(item, list) else (item,))]
    raise RefusalError("`prompt` is missing, or neither a string nor a list of strings or tokens.", param="prompt")


def _chat_tokens(messages: Any) -> list[str | int]:
    if not isinstance(messages, list) or not messages:
        raise RefusalError("`messages` is missing or empty.", param="messages")
    tokens: list[str | int] = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise RefusalError(f"`messages[{index}]` has no `role`.", param="messages")
        match message.get("content"):
            case None:
                pass
            case str() as text:
                tokens += text.split()
            case [*parts] if all(isinstance(part, Mapping) for part in parts):
                tokens += [word for part in parts for word in str(part.get("text", "")).split()]
            case _:
                raise RefusalError(f"`messages[{index}].content` is neither text nor parts.", param="messages")
    return tokens
