"""From what the user names (`--gateway`, `--profile` and the flags that override it) to a gateway that can be run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic

from conformance.errors import UsageError
from conformance.targets.gateway import EPPS, Backend, GatewayProfile
from conformance.targets.resolve import Overrides


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedGateway:
    """A gateway that can be run: its profile, and the values of placeholders that the command line gives."""

    profile: GatewayProfile
    values: Mapping[str, str]


def resolve_gateway(
    url: str | None, profile: GatewayProfile | None, overrides: Overrides, epp_listen: Sequence[str] = ()
) -> ResolvedGateway:
    """The gateway that `--gateway` and `--profile` name, with what the other flags say. Raises `UsageError`."""
    if profile is None and url is None:
        raise UsageError("nothing says which gateway is tested", hint="give --gateway URL, or --profile FILE|NAME")
    changes: dict[str, Any] = {} if profile is None else profile.model_dump(by_alias=True, exclude_unset=True)
    changes |= {"role": "data-plane", "name": changes.get("name") or url or ""}
    if url is not None:
        changes |= {"url": url, "start": {}}
    if overrides.follows is not None:
        changes["claims"] = {**changes.get("claims", {}), "follows": overrides.follows}
    changes["backends"] = _backends(profile.backends if profile else (Backend(),), overrides, epp_listen)
    try:
        found = GatewayProfile.model_validate(changes, by_alias=True, by_name=True)
    except pydantic.ValidationError as problem:
        first = problem.errors()[0]
        flag, hint = _FLAGS[str(first["loc"][0])]
        raise UsageError(f"{flag}: {str(first['msg']).removeprefix('Value error, ')}", hint=hint) from None
    if not found.started_by_us:
        _complete(found)
    return ResolvedGateway(profile=found, values={} if overrides.binary is None else {"binary": overrides.binary})


_FLAGS = {
    "claims": ("--follows", "give header, metadata or either"),
    "url": ("--gateway", "for example --gateway http://127.0.0.1:8080"),
    "backends": (
        "--epp-listen, --endpoints or --tls",
        "for example --epp-listen 127.0.0.1:9002 --endpoints 127.0.0.1:8000,127.0.0.1:8001 --tls self-signed",
    ),
}
"""Flags and examples for the parts of a profile that flags set."""


def _backends(known: Sequence[Backend], overrides: Overrides, epp_listen: Sequence[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [one.model_dump() for one in known]
    if len(epp_listen) > len(EPPS):
        raise UsageError(f"--epp-listen {epp_listen[-1]}: a gateway has at most {len(EPPS)} pools here")
    found += [Backend().model_dump() for _ in epp_listen[len(found) :]]
    for backend, address in zip(found, epp_listen, strict=False):
        backend["epp"] = address
    if overrides.endpoints:
        found[0]["endpoints"] = tuple(text.strip() for one in overrides.endpoints for text in one.split(","))
    if overrides.tls is not None:
        found = [{**backend, "tls": overrides.tls} for backend in found]
    return found


def _complete(profile: GatewayProfile) -> None:
    """A gateway that runs already has been told where its EPPs and model servers are; the suite must be, too."""
    for name, backend in zip(EPPS, profile.backends, strict=False):
        where = "" if len(profile.backends) == 1 else f" of the {name} pool"
        if backend.epp is None:
            raise UsageError(
                f"nothing says where the gateway expects the EPP{where}",
                hint="give --epp-listen HOST:PORT (backends[].epp in its profile)",
            )
        if not backend.endpoints:
            raise UsageError(
                f"nothing says which endpoints the gateway knows{where}",
                hint="give --endpoints IP:PORT,… (backends[].endpoints in its profile)",
            )
    if "{" in profile.url:
        raise UsageError(
            "the profile says neither how the gateway is started nor where it runs",
            hint="add start.command to it, or give --gateway URL",
        )
