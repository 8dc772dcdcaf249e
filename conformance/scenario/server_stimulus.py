"""What a scenario sends to a model server, as far as it follows from the scenario, the seed and the profile's limits.

The run sends it, and `report verify` demands it of the evidence.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from random import Random
from typing import Any, Protocol

from conformance.scenario.model_server import Ask, LoadStep

WORDS = (
    *("apple", "bridge", "candle", "desert", "engine", "forest", "garden", "harbour", "island", "journey", "kettle"),
    *("ladder", "market", "needle", "orchard", "pepper", "quarry", "river", "saddle", "timber", "umbrella", "valley"),
    *("window", "yellow", "zebra", "anchor", "basket", "copper", "dragon", "eagle", "feather"),
)

CONTENT = frozenset({"model", "prompt", "messages", "max_tokens", "stream", "stream_options"})
"""What scenarios say in the JSON of a request; a profile may add other fields."""

SEVERAL = frozenset({"n", "best_of", "use_beam_search"})
"""Members of a request that make several sequences of it, each of which an engine may count: load goes without."""

HIDDEN = "[prompt]"
"""What stands for the prompt in what is kept."""

NOT_JSON = b'{"model": '
"""The body of a request that is no JSON."""

RUNG = 1.5
"""Seconds that a level of load is held until it is raised: servers may show their gauges once a second."""

TOP = 4.0
"""Seconds that the highest level is held."""

HELD = 4
"""Scrapes for which load is held on once it shows, and the last ones that must be beyond doubt."""

WATCHED = 6.0
"""Seconds for which it is held on at most, as long as gauges show what can hardly be: they may lag behind."""

FIRST = 8
"""Requests of the lowest level of load."""

SHORT = 8
"""Words of a prompt that is not meant to fill the cache."""


class LoadLimits(Protocol):
    """How much a server may be asked, at most."""

    @property
    def concurrency(self) -> int:
        """Requests at a time."""

    @property
    def tokens(self) -> int:
        """Tokens of a request of the load."""

    @property
    def prompt_words(self) -> int:
        """Words of a long prompt."""


def prompt_of(words: int, rng: Random) -> str:
    """A prompt of so many words, that begins as no other does."""
    return " ".join([f"{rng.getrandbits(64):016x}", *(rng.choice(WORDS) for _ in range(words - 1))])


def described(prompt: str) -> dict[str, Any]:
    """A prompt as it is kept: its number of words and its digest."""
    return {"words": len(prompt.split()), "sha256": hashlib.sha256(prompt.encode()).hexdigest()}


def method_of(ask: Ask) -> str:
    """The HTTP method of a request."""
    return "GET" if ask.api == "models" else "POST"


def content_of(ask: Ask, model: str, prompt: str) -> dict[str, Any]:
    """The JSON of a request, without what the profile adds."""
    content: dict[str, Any] = {"model": model}
    if ask.wrong != "no-prompt":
        content |= {"messages": [{"role": "user", "content": prompt}]} if ask.api == "chat" else {"prompt": prompt}
    if ask.tokens is not None:
        content["max_tokens"] = ask.tokens
    if ask.stream:
        content["stream"] = True
    if ask.include_usage:
        content["stream_options"] = {"include_usage": True}
    return content


def has_prompt(ask: Ask) -> bool:
    """Whether the request has a body with a prompt in it."""
    return ask.api != "models" and ask.wrong not in ("not-json", "no-prompt")


def rungs(step: LoadStep, limits: LoadLimits, adapters: int) -> Iterator[tuple[int, int]]:
    """How many requests at a time, and of how many tokens: first more requests, then longer ones."""
    tokens = min(64, limits.tokens)
    match step.until:
        case "one-runs":
            yield from ((1, size) for size in _growing(tokens, limits.tokens, 4))
        case "adapters":
            yield max(1, adapters), min(128, limits.tokens)
        case _:
            first = min(FIRST, limits.concurrency)
            yield from ((size, tokens) for size in _growing(first, limits.concurrency, 2))
            longer = itertools.islice(_growing(tokens, limits.tokens, 4), 1, None)
            yield from ((limits.concurrency, size) for size in longer)


def words_of(step: LoadStep, limits: LoadLimits) -> int:
    """Words of each prompt of the load."""
    return limits.prompt_words if step.until == "kv-cache" else SHORT


def halved(words: int) -> int:
    """Words of the prompts that follow on those that were refused for their length."""
    return max(SHORT, words // 2)


def _growing(first: int, most: int, factor: int) -> Iterator[int]:
    """From `first` up to `most`, each `factor` times the one before."""
    size = first
    while size < most:
        yield size
        size *= factor
    yield most
