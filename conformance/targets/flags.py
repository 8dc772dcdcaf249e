"""The flags that name a target, and those that choose what is run: declared once, for the command line and for pytest.

Each field of `TargetFlags` and `SelectionFlags` is a flag: its name with dashes, its type, and a `Flag` for the rest.
`conformance.cli.options` and the pytest plugin make their options from them. Nothing heavy is imported here.
"""

from __future__ import annotations

import dataclasses
import shlex
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from conformance.targets.gateway import AnyProfile
    from conformance.targets.resolve import Overrides, Resolved
    from conformance.targets.resolve_gateway import ResolvedGateway
    from conformance.targets.resolve_model_server import ResolvedModelServer

REPRODUCED = "conformance-reproduced"
"""The folder for the report of what is run again, so that it does not write over the one that is being read."""


class RoleName(StrEnum):
    """Which side of the protocol is tested."""

    EPP = "epp"
    DATA_PLANE = "data-plane"
    MODEL_SERVER = "model-server"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag: the field `name` of its group, a value of `type` (`bool` takes none), or several of them if `repeated`.

    `minimum` and `maximum` bound a number. `short` is its one letter, if it has one. `roles` are those that it has a
    meaning for; none: all.
    """

    help: str
    metavar: str | None = None
    _: dataclasses.KW_ONLY
    name: str = ""
    type: type[Any] = str
    repeated: bool = False
    default: Any = None
    short: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    roles: tuple[RoleName, ...] = ()

    @property
    def option(self) -> str:
        """`--endpoints-file`."""
        return f"--{self.name.replace('_', '-')}"

    def words(self, value: Any) -> list[str]:
        """The flag with `value` as words of a command line; none for what is the default or says nothing."""
        if not value or value == self.default:
            return []
        if self.type is bool:
            return [self.option]
        return [word for one in (value if self.repeated else [value]) for word in (self.option, str(one))]


OF_OTHER_ROLES = ("role", "gateway", "epp_listen", "server", "engine", "model", "metrics_url", "data_plane", "follows")
"""Flags without meaning for what tests endpoint pickers only, and through the suite's own data plane."""


def flags(group: type[Any]) -> Iterator[Flag]:
    """The flags of a group, in the order in which it has them."""
    hints = typing.get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        hint, flag = typing.get_args(hints[field.name])
        kind = next((one for one in typing.get_args(hint) if one is not types.NoneType), hint)
        repeated = typing.get_origin(kind) is list
        kind = typing.get_args(kind)[0] if repeated else kind
        yield dataclasses.replace(flag, name=field.name, type=kind, repeated=repeated, default=field.default)


EPP, DATA_PLANE, MODEL_SERVER = ((role,) for role in RoleName)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFlags:
    """The flags that name a target, as given."""

    epp: Annotated[
        str | None,
        Flag(
            "reference (default), HOST:PORT, unix:/PATH, 'cmd:COMMAND', python:MODULE:FUNCTION or image:IMAGE.",
            "TARGET",
            roles=EPP,
        ),
    ] = None
    profile: Annotated[str | None, Flag("What the target is: a YAML file, or a profile shipped here.", "FILE|NAME")] = (
        None
    )
    binary: Annotated[str | None, Flag("The program that fills {binary} in the profile.", "PATH")] = None
    role: Annotated[
        RoleName | None, Flag("Which side is tested: an endpoint picker (default), a gateway, or a model server.")
    ] = None
    gateway: Annotated[str | None, Flag("A gateway that runs already: role data-plane.", "URL", roles=DATA_PLANE)] = (
        None
    )
    epp_listen: Annotated[
        list[str] | None,
        Flag("Where the gateway expects its EPP. Repeatable, for a second pool.", "IP:PORT", roles=DATA_PLANE),
    ] = None
    follows: Annotated[
        str | None,
        Flag(
            "Where the gateway reads the destination: header, metadata or either. Left out, that is not tested.",
            "PLACE",
            roles=DATA_PLANE,
        ),
    ] = None
    server: Annotated[
        str | None,
        Flag("A model server, role model-server: its URL, 'cmd:COMMAND' or image:IMAGE.", "TARGET", roles=MODEL_SERVER),
    ] = None
    engine: Annotated[
        str | None,
        Flag(
            "Whose names its metrics have: vllm (default), sglang, trtllm-serve or triton-tensorrt-llm.",
            "NAME",
            roles=MODEL_SERVER,
        ),
    ] = None
    model: Annotated[
        str | None,
        Flag("The model that is asked for; default: the first that it lists.", "NAME", roles=MODEL_SERVER),
    ] = None
    metrics_url: Annotated[
        str | None,
        Flag("Where its metrics are, if not where the engine has them.", "URL|PATH", roles=MODEL_SERVER),
    ] = None
    endpoints: Annotated[
        list[str] | None,
        Flag("Endpoints that the target knows; model servers are bound there.", "IP:PORT,…", roles=(*EPP, *DATA_PLANE)),
    ] = None
    endpoints_file: Annotated[
        Path | None,
        Flag(
            "File that the target watches: one endpoint a line. Rewritten during the run, restored at its end.",
            "PATH",
            roles=EPP,
        ),
    ] = None
    body_mode: Annotated[
        list[str] | None, Flag("full-duplex, buffered, streamed or none. Repeatable.", "MODE", roles=EPP)
    ] = None
    tls: Annotated[
        str | None,
        Flag(
            "plaintext, unverified (any certificate), verified; of a gateway to its EPP: plaintext or self-signed.",
            "MODE",
            roles=(*EPP, *DATA_PLANE),
        ),
    ] = None
    ca: Annotated[
        Path | None, Flag("What must have signed the target's certificate.", "PEM", roles=(*EPP, *MODEL_SERVER))
    ] = None
    data_plane: Annotated[
        str,
        Flag(
            "What carries requests to the target: the suite's own proxy, or a real Envoy (extra `envoy`).",
            "fake|envoy[:VARIANT]",
            roles=EPP,
        ),
    ] = "fake"

    @property
    def title(self) -> str:
        """The target as the user calls it; if none is named, what is tested instead, and how to name one."""
        named = self.epp or self.gateway or self.server or self.profile
        return named or "reference (the suite's own EPP; --epp or --profile names yours)"

    def resolve(self) -> Resolved | ResolvedGateway | ResolvedModelServer:
        """The target, with its profile. Without `--role`, the other flags tell whose it is. Raises `UsageError`."""
        from conformance.errors import UsageError
        from conformance.targets.resolve import WHOSE, Overrides, load_any

        for flag in ("epp", "gateway", "server", "profile", "binary"):
            if getattr(self, flag) == "":  # as "$EPP" is where the variable is not set; the default would be tested
                raise UsageError(f"what is given for --{flag} is empty", hint="is a variable of the shell not set?")
        base = load_any(self.profile) if self.profile is not None else None
        role = self._role(base)
        self._refuse_strangers(role)
        if base is not None and base.role != role:
            raise UsageError(
                f"{self.profile} is the profile of {WHOSE[base.role]}, not of {WHOSE[role]}",
                hint=f"leave out --role, or name a profile with `role: {role}`",
            )
        overrides = Overrides(
            binary=self.binary,
            endpoints=tuple(self.endpoints or ()),
            endpoints_file=self.endpoints_file,
            body_modes=tuple(self.body_mode or ()),
            tls=self.tls,
            ca=self.ca,
            follows=self.follows,
        )
        return _RESOLVE[role](self, base, overrides)

    def command_line(self, scenarios: Iterable[Path] = ()) -> str:
        """The command that runs the same target again, with scenario files of the user's own, as a shell takes it.

        Its report goes beside the one that is being read.
        """
        words = [word for flag in flags(TargetFlags) for word in flag.words(getattr(self, flag.name))]
        words += [word for path in scenarios for word in ("--scenarios", str(path))]
        return shlex.join(["epp-conformance", "run", *words, "-o", REPRODUCED])

    def _role(self, base: AnyProfile | None) -> RoleName:
        """The role that is meant: the one that is said, that of the profile, or of the flag that names the target."""
        if self.role is not None:
            return self.role
        named = {"gateway": RoleName.DATA_PLANE, "server": RoleName.MODEL_SERVER}
        meant = next((role for flag, role in named.items() if getattr(self, flag)), RoleName.EPP)
        return RoleName(base.role) if base is not None and meant is RoleName.EPP else meant

    def _refuse_strangers(self, role: RoleName) -> None:
        """Raise `UsageError` for a flag that has no meaning for the role."""
        from conformance.errors import UsageError
        from conformance.targets.resolve import WHOSE

        strange = [one for one in flags(TargetFlags) if one.roles and role not in one.roles]
        given = [one for one in strange if one.words(getattr(self, one.name))]
        if given:
            known = [one for one in RoleName if one in given[0].roles]
            whose = " or ".join(WHOSE[one] + (f" (--role {one})" if one is not RoleName.EPP else "") for one in known)
            raise UsageError(
                f"{', '.join(one.option for one in given)}: only for {whose}, and {WHOSE[role]} is tested",
                hint="leave it out, or check --role and --profile",
            )


def _epp(given: TargetFlags, _: AnyProfile | None, overrides: Overrides) -> Resolved:
    from conformance.targets.resolve import resolve

    return resolve(given.epp, given.profile, overrides)


def _gateway(given: TargetFlags, base: Any, overrides: Overrides) -> ResolvedGateway:
    from conformance.targets.resolve_gateway import resolve_gateway

    return resolve_gateway(given.gateway, base, overrides, given.epp_listen or ())


def _model_server(given: TargetFlags, base: Any, overrides: Overrides) -> ResolvedModelServer:
    from conformance.targets.resolve_model_server import resolve_model_server

    return resolve_model_server(
        given.server,
        base,
        overrides,
        engine=given.engine,
        model=given.model,
        metrics_url=given.metrics_url,
    )


_RESOLVE: Mapping[RoleName, Callable[..., Resolved | ResolvedGateway | ResolvedModelServer]] = {
    RoleName.EPP: _epp,
    RoleName.DATA_PLANE: _gateway,
    RoleName.MODEL_SERVER: _model_server,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionFlags:
    """The flags that choose what is run against a target, as given."""

    protocol_version: Annotated[
        list[str] | None, Flag("Default: 1.0.0, or the newest claimed. Repeatable.", "VERSION|all")
    ] = None
    scenario: Annotated[
        list[str] | None, Flag("Only these scenarios; @FILE has one a line. Repeatable.", "ID|GLOB|@FILE", short="k")
    ] = None
    exclude: Annotated[list[str] | None, Flag("Not these scenarios. Repeatable.", "ID|GLOB")] = None
    requirement: Annotated[list[str] | None, Flag("Only scenarios of this requirement. Repeatable.", "ID")] = None
    level: Annotated[
        list[str] | None, Flag("Only requirements of this level (MUST, SHOULD, …). Repeatable.", "LEVEL")
    ] = None
    section: Annotated[list[str] | None, Flag("Only scenarios of this section. Repeatable.", "NAME")] = None
    smoke: Annotated[bool, Flag("Only the smoke set.")] = False
    slow: Annotated[bool, Flag("Slow scenarios too.")] = False
    scenarios: Annotated[list[Path] | None, Flag("Your own scenario files, as well. Repeatable.", "DIR|FILE")] = None
    seed: Annotated[int | None, Flag("For the same prompts as in another run.", minimum=0, maximum=2**32 - 1)] = None
