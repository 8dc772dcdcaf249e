"""Which data plane carries the scenarios of a run, and what it does in an exchange that `report verify` looks for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from conformance.errors import UnknownNameError
from conformance.scenario import references
from conformance.scenario.expect import Expect
from conformance.scenario.schema import BodyMode as ScenarioMode
from conformance.scenario.schema import Exchange, Reply
from conformance.targets.profile import Profile
from ext_proc.headers import to_value
from fake_proxy.client import HttpRequest
from fake_proxy.config import BodyMode, Ending
from fake_proxy.stimulus import ServedMetadata

if TYPE_CHECKING:
    from real_envoy import EnvoyVariant

FAKE, ENVOY = "fake", "envoy"

MODES: Mapping[ScenarioMode, BodyMode] = {
    "none": BodyMode.NONE,
    "buffered": BodyMode.BUFFERED,
    "streamed": BodyMode.STREAMED,
    "full-duplex": BodyMode.FULL_DUPLEX_STREAMED,
}

ROTATION = (Ending.DRAIN, Ending.HALF_CLOSE, Ending.ENVOY)
"""Each class of stimulus runs at least once drained: what must be absent can only be seen there."""


def ending_of(exchange: Exchange, index: int) -> Ending:
    """How the stream of the `index`th repeat of `exchange` is ended."""
    return ROTATION[index % len(ROTATION)] if exchange.ending == "rotate" else Ending(exchange.ending)


APART = 1.5
"""Seconds after which an interleaved exchange expects no further one: all come as fast as we send, unless the target
keeps them waiting."""


def paced(exchange: Exchange, request: HttpRequest) -> HttpRequest:
    """`request` with the waits and pauses between its chunks that `exchange` has."""
    if not (exchange.lock_step or exchange.gap_seconds):
        return request
    chunks = [dataclasses.replace(one, after=exchange.gap_seconds) for one in request.chunks]
    chunks[:-1] = [dataclasses.replace(one, await_echo=exchange.lock_step) for one in chunks[:-1]]
    return dataclasses.replace(request, body=tuple(chunks))


def served_of(exchange: Exchange, endpoints: Mapping[str, tuple[str, ...]]) -> Any:
    """The endpoint that is reported with the response: text, another value, several of which the first that did not
    serve is meant, or which of `ServedMetadata`."""
    nobody = endpoints[references.NOBODY][0]
    match exchange.served:
        case "default":
            return ServedMetadata.ACTUAL
        case "absent":
            return ServedMetadata.ABSENT
        case "unknown":
            return nobody
        case "other":
            pods = (own for name, own in endpoints.items() if name != references.NOBODY)
            return (*(one for own in pods for one in own), nobody)
        case "ipv6":
            return "[::1]:8000"
        case "number":
            return to_value(8000)
        case "list":
            return to_value([nobody])
        case "empty":
            return ""


def about_the_response(exchange: Exchange, expect: Expect | None) -> bool:
    """Whether the stimulus is a response of a model server."""
    return exchange.reply != Reply() or bool(exchange.fail_first) or (expect is not None and expect.status is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlaneChoice:
    """The data plane of a run by its `name`. `variant` is the real Envoy's, None for the fake.

    `mode` is the body mode to which the variant is bound; None if the target's modes are driven.
    """

    name: str = FAKE
    variant: EnvoyVariant | None = None
    mode: ScenarioMode | None = None

    @classmethod
    def named(cls, name: str) -> DataPlaneChoice:
        """The data plane called `fake`, `envoy` (any endpoint known, the target's body modes) or `envoy:VARIANT`.

        Raises `UnknownNameError` for another name.
        """
        if name == FAKE:
            return cls()
        from real_envoy import VARIANTS  # takes a moment to import

        kind, _, variant = name.partition(":")
        known = {FAKE, ENVOY, *(f"{ENVOY}:{one}" for one in VARIANTS)}
        if name not in known or kind != ENVOY:
            raise UnknownNameError("data plane", name, known)
        if not variant:
            return cls(name=name, variant=VARIANTS["override-host"])
        found = VARIANTS[variant]
        mode = next(ours for ours, theirs in MODES.items() if theirs is found.config.request_body_mode)
        return cls(name=name, variant=found, mode=mode)

    def response_mode(self, request: BodyMode, response: BodyMode) -> BodyMode:
        """The response body mode of an exchange that asks for these two: a variant that is bound to the request's has
        its own, unless the exchange has one, too."""
        if self.variant is None or self.mode is None or response is not request:
            return response
        own = self.variant.config
        return own.response_body_mode if own.request_body_mode is request else response

    def driven(self, profile: Profile) -> Profile:
        """The profile with the body modes that this data plane drives."""
        return profile if self.mode is None else profile.model_copy(update={"body_modes": (self.mode,)})
