"""What a model server is asked: requests of scenarios and of load, with prompts that come from the seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from conformance.evidence.model_server import ServerAsked
from conformance.scenario.model_server import API_PATHS, Ask
from conformance.scenario.server_stimulus import (
    HIDDEN,
    NOT_JSON,
    SEVERAL,
    content_of,
    described,
    has_prompt,
    method_of,
    prompt_of,
)
from conformance.targets.model_server import ModelServerProfile
from ext_proc.record import Headers

ENDLESS: Mapping[str, Mapping[str, Any]] = {"vllm": {"ignore_eos": True}, "sglang": {"ignore_eos": True}}
"""By engine, what makes an answer as long as it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRequest:
    """A request as it is sent, and as it is kept (`asked`)."""

    method: str
    path: str
    headers: Headers
    body: bytes
    prompt: str
    asked: ServerAsked


def request_of(profile: ModelServerProfile, model: str, ask: Ask, rng: Random, same: Random) -> ServerRequest:
    """The request of a step. `rng` gives its own prompt, `same` the one that several steps share."""
    prompt = prompt_of(ask.prompt_words, same if ask.prompt == "same" else rng)
    chosen = profile.adapters[0] if ask.model == "adapter" else model
    if ask.wrong == "unknown-model":
        chosen = profile.requests.unknown_model
    return _made(profile, ask, prompt, model=chosen)


def load_request(profile: ModelServerProfile, model: str, *, tokens: int, words: int, rng: Random) -> ServerRequest:
    """A request of the load: streamed, of as many tokens as it says, if the engine can be told so."""
    ask = Ask(api="completions", stream=True, tokens=tokens)
    further = ENDLESS.get(profile.engine, {})
    return _made(profile, ask, prompt_of(words, rng), model=model, further=further, left_out=SEVERAL)


def _made(
    profile: ModelServerProfile,
    ask: Ask,
    prompt: str,
    *,
    model: str,
    further: Mapping[str, Any] | None = None,
    left_out: frozenset[str] = frozenset(),
) -> ServerRequest:
    requests = profile.requests
    added = {name: value for name, value in requests.body.items() if name not in left_out}
    content = {"temperature": 0, **(further or {}), **added, **content_of(ask, model, prompt)}
    body = b"" if ask.api == "models" else NOT_JSON if ask.wrong == "not-json" else json.dumps(content).encode()
    given = {"content-type": "application/json"} if body else {}
    given |= {"accept": "text/event-stream"} if ask.stream else {}
    headers = tuple(
        (name.lower().encode(), value.encode())
        for name, value in {**given, **requests.headers, **requests.secret_headers}.items()
    )
    method = method_of(ask)
    return ServerRequest(
        method=method,
        path=API_PATHS[ask.api],
        headers=headers,
        body=body,
        prompt=prompt if has_prompt(ask) else "",
        asked=ServerAsked(
            method=method,
            path=API_PATHS[ask.api],
            headers=headers,
            body=body.replace(prompt.encode(), HIDDEN.encode()),
            prompt=described(prompt) if has_prompt(ask) else {},
            api=ask.api,
            stream=ask.stream,
            include_usage=ask.include_usage,
            tokens=ask.tokens,
            wrong=ask.wrong,
            model=model,
            adapter=model in profile.adapters,
        ),
    )
