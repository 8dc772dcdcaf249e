"""What a model server is asked: requests of scenarios and of load, with prompts that come from the seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from conformance.evidence.model_server import ServerAsked
from conformance.scenario.model_server import API_PATHS, Ask
from conformance.targets.model_server import ModelServerProfile
from ext_proc.record import Headers

HIDDEN = "[prompt]"
"""What stands for the prompt in what is kept."""

WORDS = [
    "apple",
    "bridge",
    "candle",
    "desert",
    "engine",
    "forest",
    "garden",
    "harbour",
    "island",
    "journey",
    "kettle",
    "ladder",
    "market",
    "needle",
    "orchard",
    "pepper",
    "quarry",
    "river",
    "saddle",
    "timber",
    "umbrella",
    "valley",
    "window",
    "yellow",
    "zebra",
    "anchor",
    "basket",
    "copper",
    "dragon",
    "eagle",
    "feather",
]

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


def prompt_of(words: int, rng: Random) -> str:
    """A prompt of so many words, that begins as no other does."""
    return " ".join([f"{rng.getrandbits(64):016x}", *(rng.choice(WORDS) for _ in range(words - 1))])


def request_of(profile: ModelServerProfile, model: str, ask: Ask, rng: Random, same: Random) -> ServerRequest:
    """The request of a step. `rng` gives its own prompt, `same` the one that several steps share."""
    prompt = prompt_of(ask.prompt_words, same if ask.prompt == "same" else rng)
    chosen = profile.adapters[0] if ask.model == "adapter" else model
    if ask.wrong == "unknown-model":
        chosen = profile.requests.unknown_model
    content: dict[str, Any] = {"model": chosen, **_prompt(ask, prompt), "temperature": 0}
    if ask.tokens is not None:
        content["max_tokens"] = ask.tokens
    if ask.stream:
        content["stream"] = True
    if ask.include_usage:
        content["stream_options"] = {"include_usage": True}
    if ask.wrong == "no-prompt":
        del content["messages" if ask.api == "chat" else "prompt"]
    content |= profile.requests.body
    body = b"" if ask.api == "models" else json.dumps(content).encode()
    if ask.wrong == "not-json":
        body = b'{"model": '
    return _made(profile, ask, prompt, body, model=chosen)


def load_request(profile: ModelServerProfile, model: str, *, tokens: int, words: int, rng: Random) -> ServerRequest:
    """A request of the load: streamed, of as many tokens as it says, if the engine can be told so."""
    prompt = prompt_of(words, rng)
    ask = Ask(api="completions", stream=True, tokens=tokens)
    content = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": tokens, "stream": True}
    content |= {**ENDLESS.get(profile.engine, {}), **profile.requests.body}
    return _made(profile, ask, prompt, json.dumps(content).encode(), model=model)


def _prompt(ask: Ask, prompt: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}]} if ask.api == "chat" else {"prompt": prompt}


def _made(profile: ModelServerProfile, ask: Ask, prompt: str, body: bytes, *, model: str) -> ServerRequest:
    requests = profile.requests
    given = {"content-type": "application/json"} if body else {}
    given |= {"accept": "text/event-stream"} if ask.stream else {}
    headers = tuple(
        (name.lower().encode(), value.encode())
        for name, value in {**given, **requests.headers, **requests.secret_headers}.items()
    )
    has_prompt = prompt.encode() in body
    method, path = ("GET" if ask.api == "models" else "POST"), API_PATHS[ask.api]
    digest = hashlib.sha256(prompt.encode()).hexdigest()
    return ServerRequest(
        method=method,
        path=path,
        headers=headers,
        body=body,
        prompt=prompt if has_prompt else "",
        asked=ServerAsked(
            method=method,
            path=path,
            headers=headers,
            body=body.replace(prompt.encode(), HIDDEN.encode()),
            prompt={"words": len(prompt.split()), "sha256": digest} if has_prompt else {},
            api=ask.api,
            stream=ask.stream,
            include_usage=ask.include_usage,
            tokens=ask.tokens,
            wrong=ask.wrong,
            model=model,
            adapter=model in profile.adapters,
        ),
    )
