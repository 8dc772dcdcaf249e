"""From the flags of `pool`, or from a file, to the pods that are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic
from pydantic import Field

from conformance.errors import UsageError
from conformance.reading.endpoints import parse
from conformance.strict_yaml import FileError, load_located
from fake_modelserver.control.schema import FaultModel, PodModel

Place = tuple[str | None, tuple[int, ...]]
"""Address and ports; None and none: the fleet gives them."""

_OF_ALL = ("name", "path", "after", "count", "toxicity", "duration")


class PoolFile(pydantic.BaseModel):
    """A file of pods. Each has the fields that the control API's `POST /pods` takes."""

    model_config = pydantic.ConfigDict(extra="forbid")
    pods: tuple[PodModel, ...] = Field(min_length=1, description="the pods")


def read(path: Path) -> list[PodModel]:
    """The pods of a file. Raises `FileError`, with the place of each mistake."""
    found, document = load_located(path, PoolFile)
    problems = []
    for number, one in enumerate(found.pods):
        try:
            one.spec()
        except ValueError as problem:
            problems.append(document.problem(("pods", number), str(problem)))
        for index, fault in enumerate(one.faults):
            try:
                fault.fault()
            except ValueError as problem:
                problems.append(document.problem(("pods", number, "faults", index), str(problem)))
    if problems:
        raise FileError(problems)
    return list(found.pods)


def alike(
    places: Sequence[Place],
    *,
    gauges: Mapping[str, float | None],
    serving: Mapping[str, float | None],
    faults: Sequence[FaultModel],
    **fields: Any,
) -> list[PodModel]:
    """Pods that differ in their place alone. Raises `UsageError` for values that make no sense, or not together."""
    given = {name: value for name, value in gauges.items() if value is not None}
    times = {name: value for name, value in serving.items() if value is not None}
    if given and times:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in (*given, *times))
        raise UsageError(
            f"{flags}: gauges are set, or follow from requests",
            hint="leave out one of both; --file can pin gauges of single pods",
        )
    found = {
        **fields,
        "any_model": not times,
        "gauges": {"kv": 0.1, **given} if not times else {},
        "faults": [one.model_dump() for one in faults],
    }
    if times:
        found["serving"] = {
            "max_running": times.get("max_running", 8),
            "max_loras": len(fields["adapters"]),
            "first_token": {"mean": times.get("first_token", 50) / 1000},
            "between_tokens": {"mean": times.get("between_tokens", 10) / 1000},
        }
    pods = []
    for number, (address, ports) in enumerate(places, 1):
        try:
            one = PodModel.model_validate({"name": f"pod-{number}", "address": address, "ports": ports, **found})
            one.spec()
        except pydantic.ValidationError as problem:
            first = problem.errors()[0]
            name = str(first["loc"][0]).replace("_", "-")
            raise UsageError(f"--{name}: {str(first['msg']).removeprefix('Value error, ')}") from None
        except ValueError as problem:
            raise UsageError(str(problem)) from None
        pods.append(one)
    return pods


def fault(text: str) -> FaultModel:
    """A fault as `TYPE,KEY=VALUE,…`: the keys are those that every fault has, and those of its type.

    Raises `UsageError`.
    """
    kind, *rest = text.split(",")
    found: dict[str, Any] = {"type": kind, "attributes": {}}
    for part in rest:
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"--fault {text!r}: {part!r} is no KEY=VALUE", hint="as --fault latency,latency=500")
        (found if key in _OF_ALL else found["attributes"])[key] = _value(value)
    try:
        one = FaultModel.model_validate(found)
        one.fault()
    except pydantic.ValidationError as problem:
        raise UsageError(f"--fault {text!r}: {problem.errors()[0]['msg']}") from None
    except ValueError as problem:
        raise UsageError(f"--fault {text!r}: {problem}") from None
    return one


def place(text: str, flag: str = "--endpoint", *, any_free: bool = False) -> Place:
    """Address and port of `ip:port`; with `any_free` port 0 means any free one. Raises `UsageError`."""
    any_port = any_free and text.endswith(":0")
    item = parse(f"{text[:-1]}1" if any_port else text)
    if item.canonical is None:
        raise UsageError(f"{flag} {text!r}: {item.problem}", hint="give ip:port, IPv6 as [::1]:port")
    host, _, port = item.canonical.rpartition(":")
    return host.strip("[]"), (0 if any_port else int(port),)


def _value(text: str) -> Any:
    """A number, names between `+`, or a text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text.split("+") if "+" in text else text
