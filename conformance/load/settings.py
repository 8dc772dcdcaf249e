"""What a load run is to do, and how far it may go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from conformance.errors import UsageError
from conformance.load.memory import MEMORY
from conformance.load.mix import LoadFile
from conformance.targets.profile import Profile
from ext_proc.http2.address import UNIX
from fake_proxy.pace import PATIENCE

_MARGIN = 5.0
"""Seconds that exchanges get to end beyond the time that they may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What a load run is to do. `grace`: seconds in which a change of the pool must be followed once it was delivered
    (None: the profile's convergence time). `at_once`: exchanges that may be under way; `memory`: bytes for what is
    remembered.

    Where `of` processes share the load, this one has the number `index`, and `head` begins the ids of all.
    """

    profile: Profile
    version: str
    values: Mapping[str, str]
    file: LoadFile
    seed: int
    grace: float | None = None
    at_once: int = 10_000
    memory: int = MEMORY
    index: int = 0
    of: int = 1
    head: str = ""

    @property
    def grace_time(self) -> float:
        """Those seconds."""
        return self.profile.timeouts.convergence if self.grace is None else self.grace

    @property
    def endpoints(self) -> int:
        """How many the pool has when the load begins."""
        fixed = self.profile.discovery.fixed
        return self.file.pods if fixed is None else len(fixed.endpoints)

    @property
    def longest_end(self) -> float:
        """Seconds in which what is under way ends, whatever the target does."""
        longest = max((one.service_time for one in self.file.mix), default=0.0)
        return PATIENCE * self.profile.timeouts.answer + longest + _MARGIN


def check_arrivals(file: LoadFile, at_once: int) -> None:
    """Raise `UsageError` where more requests are to be under way than `at_once` lets begin."""
    for one in file.arrivals:
        way, number = ("concurrent", one.concurrent) if one.burst is None else ("burst", one.burst)
        if number is not None and number > at_once:
            raise UsageError(
                f"{way}: {number} is more than --at-once lets begin, which is {at_once}", hint=f"add --at-once {number}"
            )


def loopback(host: str) -> bool:
    """Whether a host is this machine's own."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_bounds(profile: Profile, *, remote: bool) -> None:
    """Raise `UsageError` for a target on another machine, unless that is meant."""
    if profile.address.startswith(UNIX):
        return
    host = profile.address.rpartition(":")[0]
    if not profile.started_by_us and not loopback(host) and not remote:
        raise UsageError(
            f"{host} is another machine, and a load may be more than it can bear",
            hint="add --allow-remote if it is yours to load",
        )


def check_workers(profile: Profile, host: str, *, remote: bool) -> None:
    """Raise `UsageError` if workers of other machines can reach the master at `host`, unless that is meant; or if they
    could not reach the target then."""
    if loopback(host):
        return
    if not remote:
        raise UsageError(
            f"--bind {host or '(every interface)'} lets other machines take part, without a password or encryption",
            hint="add --allow-remote if the network is yours alone, or bind to 127.0.0.1",
        )
    target = profile.address.rpartition(":")[0]
    if profile.address.startswith(UNIX) or loopback(target) or target in _EVERY_INTERFACE:
        raise UsageError(
            f"workers on other machines can't reach a target at {profile.address}",
            hint="give its address as the workers see it; it must listen there",
        )


_EVERY_INTERFACE = ("", "0.0.0.0", "[::]")
