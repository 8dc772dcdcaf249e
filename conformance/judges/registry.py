"""Which judges there are, and what each speaks about."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from conformance.judges.episode_view import EpisodeView
from conformance.judges.exchange_view import ExchangeView
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.verdict import Finding

F = TypeVar("F", bound=Callable[..., Iterable[Finding]])

Role = Literal["epp", "data-plane", "model-server"]
"""The roles that judges speak about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A judge: what it speaks about, and how it is asked (exactly one of the three). It speaks in one role only."""

    name: str
    requirements: tuple[str, ...]
    role: Role = "epp"
    of_exchange: Callable[[ExchangeView], Iterable[Finding]] | None = None
    of_gateway_exchange: Callable[[GatewayExchange], Iterable[Finding]] | None = None
    of_episode: Callable[[EpisodeView], Iterable[Finding]] | None = None
    hygiene: bool = False
    """Whether it also judges the polls made while the pool settles."""

    @property
    def place(self) -> str:
        """Where it is written, as `path:line` from the root of the tree."""
        function = self.of_exchange or self.of_gateway_exchange or self.of_episode
        assert function is not None
        return f"{function.__module__.replace('.', '/')}.py:{inspect.unwrap(function).__code__.co_firstlineno}"


JUDGES: dict[str, Judge] = {}
"""Every judge by name, in the order in which they are asked."""


def judge_of_exchange(*requirements: str, hygiene: bool = False) -> Callable[[F], F]:
    """Register a function of one `ExchangeView` as the judge of `requirements`. It gives findings on no others."""

    def register(function: F) -> F:
        name = _name(function)
        JUDGES[name] = Judge(name=name, requirements=requirements, of_exchange=function, hygiene=hygiene)
        return function

    return register


def judge_of_gateway_exchange(*requirements: str) -> Callable[[F], F]:
    """Register a function of one `GatewayExchange` as the judge of `requirements` of a data plane."""

    def register(function: F) -> F:
        name = _name(function)
        JUDGES[name] = Judge(name=name, requirements=requirements, role="data-plane", of_gateway_exchange=function)
        return function

    return register


def judge_of_episode(*requirements: str, role: Role = "epp") -> Callable[[F], F]:
    """Register a function of the whole `EpisodeView` as the judge of `requirements`."""

    def register(function: F) -> F:
        name = _name(function)
        JUDGES[name] = Judge(name=name, requirements=requirements, role=role, of_episode=function)
        return function

    return register


def _name(function: Callable[..., object]) -> str:
    return f"{function.__module__.removeprefix('conformance.judges.')}.{function.__name__}"
