"""The profile of a gateway under test (role data-plane): how it is started, where it expects its EPPs, what it claims.

The suite plays the EPPs and the model servers. Strings of `start` and `url` may hold placeholders: `{port}` (a free
one), `{epp}` (`host:port` of the scripted EPP), `{endpoints}` (the pool, separated by commas), `{epp2}` and
`{endpoints2}` (those of a second pool), `{binary}`, `{version}` (protocol version), `{workdir}` (a scratch folder of
the run), `{python}`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from conformance.errors import did_you_mean
from conformance.evidence.episode import GatewayFacts
from conformance.reading.endpoints import distinct
from conformance.reading.endpoints import parse as parse_endpoint
from conformance.requirements.schema import Version
from conformance.scenario.header_fields import is_header_name
from conformance.strict_yaml import FileModel
from conformance.targets.launch import Launch, fill
from conformance.targets.model_server import ModelServerProfile
from conformance.targets.ports import free_ports
from conformance.targets.profile import (
    Implementation,
    Limits,
    Metadata,
    Misplaced,
    Profile,
    Requests,
    SystemText,
    Timeouts,
)

NAMES = ("port", "epp", "endpoints", "epp2", "endpoints2", "binary", "version", "workdir", "python")
EPPS = ("first", "second")
"""What the scripted EPPs of a gateway's pools are called."""


class GatewayStart(FileModel):
    """How the suite starts the gateway: a command, or the real Envoy. Neither: it runs already, at `url`."""

    command: tuple[SystemText, ...] | None = Field(None, min_length=1, description="program and arguments, no shell")
    env: dict[SystemText, SystemText] = Field({}, description="environment variables added to the suite's own")
    workdir: SystemText | None = Field(None, description="folder in which it is started")
    envoy: str | None = Field(
        None, description="the real Envoy, set up in one of the ways of the field (`override-host`, …)"
    )

    @model_validator(mode="after")
    def _one_way(self) -> GatewayStart:
        if self.command and self.envoy:
            raise ValueError("give `command` or `envoy`, not both")
        return self

    @field_validator("envoy")
    @classmethod
    def _known(cls, envoy: str | None) -> str | None:
        if envoy is not None:
            from real_envoy.variants import VARIANTS

            if envoy not in VARIANTS:
                raise ValueError(f"there is no such way to set up Envoy; {did_you_mean(envoy, VARIANTS)}")
        return envoy


class Backend(FileModel):
    """One InferencePool behind the gateway. What a gateway that runs already knows of it must be said."""

    epp: str | None = Field(
        None, description="host:port at which the gateway expects the pool's EPP; default: a free port, as {epp}"
    )
    tls: Literal["plaintext", "self-signed"] = Field("plaintext", description="how that EPP is spoken to")
    endpoints: tuple[str, ...] = Field(
        (), description="the pool's endpoints, where model servers are bound; default: chosen, as {endpoints}"
    )

    @field_validator("epp")
    @classmethod
    def _address(cls, epp: str | None) -> str | None:
        if epp is not None and parse_endpoint(epp).canonical is None:
            raise ValueError(f"{epp!r} is no address to listen on: give ip:port, IPv6 as [::1]:port")
        return epp

    @field_validator("endpoints")
    @classmethod
    def _canonical(cls, endpoints: tuple[str, ...]) -> tuple[str, ...]:
        return distinct(endpoints)


class GatewayProfile(FileModel):
    """A gateway under test."""

    role: Literal["data-plane"] = Field(description="says that this is a gateway's profile and not an EPP's")
    name: str = Field("", description="what the gateway is called")
    implementation: Implementation = Field(Implementation.model_construct(), description="who made it")
    start: GatewayStart = Field(GatewayStart.model_construct(), description="how it is started")
    url: str = Field("http://127.0.0.1:{port}", description="where it takes requests for the pool")
    backends: tuple[Backend, ...] = Field(
        default_factory=lambda: (Backend(),),
        min_length=1,
        max_length=2,
        description="its pools, by default one; of two, it takes the second when the first fails, unless it splits "
        "requests over both (`claims.splitHeader`)",
    )
    subset_header: str | None = Field(
        None, description="a request header of which it makes the subset hint: endpoints separated by commas"
    )
    requests: Requests = Field(Requests.model_construct(), description="what the suite's requests look like")
    metadata: Metadata = Field(Metadata.model_construct(), description="namespaces, if not the protocol's")
    limits: Limits = Field(Limits.model_construct(), description="how much it may be asked")
    protocol_versions: tuple[Version, ...] = Field(("1.0.0",), min_length=1, description="the versions that it claims")
    claims: GatewayFacts = Field(GatewayFacts(), description="how it was configured, as far as a rule depends on it")
    timeouts: Timeouts = Field(Timeouts.model_construct(), description="bounds of every wait, in seconds")

    @field_validator("claims")
    @classmethod
    def _pools_apart(cls, claims: GatewayFacts) -> GatewayFacts:
        if claims.backends:
            raise ValueError("the pools are described under `backends` of the profile, not as claims")
        return claims

    @model_validator(mode="after")
    def _two_to_split(self) -> GatewayProfile:
        if self.claims.split_header and len(self.backends) < 2:
            raise ValueError("a route that splits (`claims.splitHeader`) needs two pools: name two under `backends`")
        return self

    @field_validator("url")
    @classmethod
    def _plain_http(cls, url: str) -> str:
        parts = urlsplit(url.replace("{port}", "1"))
        try:
            rest = parts.port is None or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment
        except ValueError:
            rest = True
        if parts.scheme != "http" or rest:
            raise ValueError("give http://host:port; the path of requests is `requests.path`")
        return url

    @property
    def started_by_us(self) -> bool:
        """True if the suite starts the gateway, so that it can also restart it."""
        return bool(self.start.command or self.start.envoy)

    @property
    def only_one_at_a_time(self) -> str | None:
        """Why two runs of this gateway can't stand side by side on one machine."""
        return "its pods and EPPs change their conduct from one scenario to the next"

    @property
    def started_for(self) -> tuple[str, ...]:
        """The protocol versions for which it can be started; empty: for any."""
        return ()

    @property
    def address(self) -> str:
        """host:port of its listener, with placeholders."""
        return self.url.removeprefix("http://").rstrip("/")

    def beside(self, folder: Path) -> GatewayProfile:
        """The profile with its relative paths read from the folder of its file."""
        workdir = self.start.workdir and str((folder / self.start.workdir).absolute())
        return self.model_copy(update={"start": self.start.model_copy(update={"workdir": workdir})})

    def out_of_place(self) -> Iterator[Misplaced]:
        """Claims that can't be, of which judges would make that less is asked of it; and names that are no headers'."""
        claims = self.claims
        if claims.retries < 0:
            yield (
                ("claims", "retries"),
                f"{claims.retries} is less than none",
                "give the number of further attempts, or 0",
            )
        if odd := [status for status in claims.retry_statuses if status not in range(200, 600)]:
            yield ("claims", "retryStatuses"), f"{odd[0]} is no status of a response", "give statuses such as 503"
        for path, name in ((("claims", "splitHeader"), claims.split_header), (("subsetHeader",), self.subset_header)):
            if name and not is_header_name(name):
                yield path, f"{name!r} is no header's name", "it has letters, digits and !#$%&'*+-.^_`|~"


AnyProfile: TypeAlias = Profile | GatewayProfile | ModelServerProfile


def gateway_launch(profile: GatewayProfile, version: str, values: Mapping[str, str]) -> Launch:
    """How to start `profile`; `values` has what the run and the command line give. Raises `UsageError`."""
    values = {"port": str(free_ports(1)[0]), **values, "version": version, "python": sys.executable}

    def filled(text: str, where: str) -> str:
        return fill(text, values, where, names=NAMES, missing=_MISSING)

    return Launch(
        command=tuple(filled(word, "start.command") for word in profile.start.command or ()),
        env={name: filled(value, f"start.env.{name}") for name, value in profile.start.env.items()},
        address=filled(profile.address, "url"),
        image=None,
        health_address=None,
        values=values,
    )


_MISSING = {
    "binary": "give it with --binary",
    "epp2": "the profile has one pool; name two under `backends`",
    "endpoints2": "the profile has one pool; name two under `backends`",
}
