"""What can go wrong with a fleet.

FleetError                   root: a code, what happened, and what to do about it
├── AddressTakenError        another socket owns address and port
├── AddressUnavailableError  this machine cannot bind the address or port at all
├── PodExistsError           the name is in use in this fleet
├── UnknownPodError          no pod of that name
└── FleetStoppedError        the fleet is not running
"""

from __future__ import annotations

from typing import ClassVar


class FleetError(Exception):
    """Root of the fleet's errors: `code` is stable, `hint` is the next step for a person."""

    code: ClassVar[str] = "fleet"

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}. {hint}.")
        self.message = message
        self.hint = hint


class AddressTakenError(FleetError):
    """Another socket owns `address`:`port`."""

    code = "address-taken"

    def __init__(self, address: str, port: int) -> None:
        super().__init__(
            f"{endpoint(address, port)} is taken by another socket",
            f"End the process that listens there (`ss -ltnp 'sport = :{port}'` shows it; a server on 0.0.0.0:{port} "
            "takes every address), or choose another address or port",
        )
        self.address = address
        self.port = port


class AddressUnavailableError(FleetError):
    """This machine cannot bind `address`:`port`: not its address, not a valid one, or not permitted."""

    code = "address-unavailable"

    def __init__(self, address: str, port: int, reason: str) -> None:
        super().__init__(
            f"{endpoint(address, port)} cannot be bound: {reason}",
            "Use an address of this machine and a port from 1024 to 65535; where only 127.0.0.1 is configured, give "
            "no address and the fleet takes one port per pod",
        )
        self.address = address
        self.port = port
        self.reason = reason


class PodExistsError(FleetError):
    """The fleet already has a pod of that name."""

    code = "pod-exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"pod {name!r} is already in the fleet", "Remove it first, or choose another name")


class UnknownPodError(FleetError):
    """The fleet has no pod of that name."""

    code = "unknown-pod"

    def __init__(self, name: str, known: list[str]) -> None:
        listed = ", ".join(known[:20]) or "none"
        super().__init__(f"no pod {name!r} in the fleet", f"Pods now: {listed}")


class FleetStoppedError(FleetError):
    """The fleet was not started, or is stopped."""

    code = "fleet-stopped"

    def __init__(self) -> None:
        super().__init__("the fleet is not running", "Call `await fleet.start()`, or use `async with Fleet() as fleet`")


def endpoint(address: str, port: int) -> str:
    """`address:port` as the protocol writes it: IPv6 in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
