"""Requests whose prompts have characters of several bytes."""

from __future__ import annotations

import json
import random

from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import load
from conformance.scenario.schema import CHAT_PATH, Exchange
from conformance.targets.http_request import http_request
from conformance.targets.resolve import REFERENCE, load_profile


def prompt_of(exchange: Exchange) -> bytes:
    """The prompt as a model server reads it, in bytes."""
    body = json.loads(http_request(exchange, load_profile(REFERENCE).requests, random.Random(1)).body)
    return (body["messages"][0]["content"] if exchange.path == CHAT_PATH else body["prompt"]).encode()


def test_wherever_a_prompt_is_cut_one_is_cut_inside_a_character() -> None:
    """A target that cuts prompts at some byte, as Rust's `&prompt[..100]`, then fails at one of the two."""
    wide = [one for one in load(Catalogue.load()) if one.id.startswith("destination.wide-characters[")]
    asked = [step.exchange for one in wide for step in one.scenario.steps if step.exchange is not None]
    assert asked
    for path in {one.path for one in asked}:
        prompts = [prompt_of(one) for one in asked if one.path == path]
        assert min(map(len, prompts)) > 16_384
        for place in range(1, 16_385):
            assert any(prompt[place] & 0xC0 == 0x80 for prompt in prompts), place
