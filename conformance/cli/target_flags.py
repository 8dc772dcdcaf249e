"""What the flags of `run`, `certify` and `profile check` name: an endpoint picker, or a gateway."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.cli import options

if TYPE_CHECKING:
    from conformance.targets.resolve import Resolved
    from conformance.targets.resolve_gateway import ResolvedGateway


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The flags that name a target, as given."""

    role: options.RoleName | None = None
    epp: str | None = None
    gateway: str | None = None
    profile: str | None = None
    binary: str | None = None
    epp_listen: list[str] | None = None
    endpoints: list[str] | None = None
    endpoints_file: Path | None = None
    body_mode: list[str] | None = None
    tls: str | None = None
    ca: Path | None = None
    data_plane: str = "fake"
    scenarios: list[Path] | None = None

    @property
    def title(self) -> str:
        """The target as the user calls it."""
        return self.epp or self.gateway or self.profile or "reference"

    def resolve(self) -> Resolved | ResolvedGateway:
        """The target, with its profile. Without `--role`, the other flags tell whose it is. Raises `UsageError`."""
        from conformance.errors import UsageError
        from conformance.targets.gateway import GatewayProfile
        from conformance.targets.resolve import Overrides, load_any, resolve
        from conformance.targets.resolve_gateway import resolve_gateway

        for flag in ("epp", "gateway", "profile", "binary"):
            if getattr(self, flag) == "":  # as "$EPP" is where nobody set it; the default would be tested instead
                raise UsageError(f"what is given for --{flag} is empty", hint="is a variable of the shell not set?")
        base = load_any(self.profile) if self.profile is not None else None
        is_gateway = isinstance(base, GatewayProfile)
        meant = self.role is options.RoleName.DATA_PLANE or (self.role is None and (is_gateway or bool(self.gateway)))
        self._refuse_strangers(gateway=meant)
        overrides = Overrides(
            binary=self.binary,
            endpoints=tuple(self.endpoints or ()),
            endpoints_file=self.endpoints_file,
            body_modes=tuple(self.body_mode or ()),
            tls=self.tls,
            ca=self.ca,
        )
        if not meant:
            return resolve(self.epp, self.profile, overrides)
        if base is not None and not isinstance(base, GatewayProfile):
            hint = "leave out --role, or name a profile with `role: data-plane`"
            raise UsageError(f"{self.profile} is the profile of an endpoint picker, not of a gateway", hint=hint)
        return resolve_gateway(self.gateway, base, overrides, self.epp_listen or ())

    def command_line(self) -> str:
        """The command that runs the same target again, as a shell takes it."""
        flags: list[tuple[str, object]] = [
            ("--role", self.role.value if self.role is not None else None),
            ("--epp", self.epp),
            ("--gateway", self.gateway),
            ("--profile", self.profile),
            ("--binary", self.binary),
            *(("--epp-listen", address) for address in self.epp_listen or ()),
            ("--endpoints", ",".join(self.endpoints or ())),
            ("--endpoints-file", self.endpoints_file),
            *(("--body-mode", mode) for mode in self.body_mode or ()),
            ("--tls", self.tls),
            ("--ca", self.ca),
            *(("--scenarios", path) for path in self.scenarios or ()),
            ("--data-plane", self.data_plane if self.data_plane != "fake" else None),
        ]
        words = [word for flag, value in flags if value for word in (flag, str(value))]
        return shlex.join(["epp-conformance", "run", *words])

    def _refuse_strangers(self, *, gateway: bool) -> None:
        """Raise `UsageError` for a flag that has no meaning for the role."""
        from conformance.errors import UsageError

        of_epps = {
            "--epp": self.epp,
            "--endpoints-file": self.endpoints_file,
            "--body-mode": self.body_mode,
            "--ca": self.ca,
            "--data-plane": self.data_plane != "fake",
        }
        of_gateways = {"--gateway": self.gateway, "--epp-listen": self.epp_listen}
        given = [flag for flag, value in (of_epps if gateway else of_gateways).items() if value]
        if given:
            whose = "an endpoint picker, and a gateway is tested" if gateway else "a gateway (--role data-plane)"
            raise UsageError(
                f"{', '.join(given)}: only for {whose}", hint="leave it out, or check --role and --profile"
            )
