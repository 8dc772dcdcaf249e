"""An endpoint picker that is a Python function, for `--epp python:MODULE:FUNCTION`: looked at, and called, in a child.

    python -m conformance.targets.python_epp ask MODULE:FUNCTION            its parameters, or what is wrong, as JSON
    python -m conformance.targets.python_epp call MODULE:FUNCTION NAME=VALUE…

The module is imported from the current folder, as `python -m` does it. The function is called with the arguments that
it asks for by name, in the main thread, and serves until SIGTERM ends the process; a coroutine is run on asyncio.
Nothing of the project but `conformance` itself is imported: what the function's module imports is its own affair.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

ARGUMENTS: Mapping[str, str] = {
    "host": "127.0.0.1",
    "port": "{port}",
    "address": "127.0.0.1:{port}",
    "socket": "{socket}",
    "endpoints_file": "{endpointsFile}",
    "kubeconfig": "{kubeconfig}",
    "namespace": "{namespace}",
    "pool": "{pool}",
    "health_port": "{healthPort}",
    "metrics_port": "{metricsPort}",
    "version": "{version}",
    "workdir": "{workdir}",
}
"""What a function may ask for, and the placeholder of a profile that fills it. Ports are numbers, the rest is text."""

PLACES = ("port", "address", "socket")
"""One of these says where to listen."""


class CanNotCallError(Exception):
    """A function that can't be called: `what` is wrong, and a `hint`."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def main(words: Sequence[str]) -> int:
    """Ask or call. The exit code."""
    what, name, *given = words
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the module prints as it is imported is no answer
            function = found(name)
            asked = asks(function)
    except CanNotCallError as problem:
        if what == "ask":
            _say({"error": problem.what, "hint": problem.hint})
        else:
            sys.stderr.write(f"{problem.what}\n")
        return 2
    if what == "ask":
        _say({"asks": asked})
        return 0
    values = dict(word.partition("=")[::2] for word in given)
    arguments = {one: int(values[one]) if one.endswith("port") else values[one] for one in asked}
    result = function(**arguments)
    if inspect.isawaitable(result):
        asyncio.run(_awaited(result))
    sys.stderr.write(f"{name} returned: it must serve until the process is ended; a server in a thread needs a join\n")
    return 1


def found(name: str) -> Callable[..., Any]:
    """The function `MODULE:FUNCTION`. Raises `CanNotCallError`."""
    module, _, attribute = name.partition(":")
    try:
        place: Any = importlib.import_module(module)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (module == problem.name or module.startswith(f"{problem.name}.")):
            hint = "run it from the folder that has it, or install it beside the suite"
            raise CanNotCallError(f"there is no module {problem.name}", hint) from problem
        hint = f"install {problem.name} beside the suite, in {sys.prefix}"
        raise CanNotCallError(f"{module} can't be imported: {problem}", hint) from problem
    except BaseException as problem:
        what = f"{module} can't be imported: {type(problem).__name__}: {problem}"
        raise CanNotCallError(what, f"`python -c 'import {module}'` shows where") from problem
    for part in attribute.split("."):
        if not hasattr(place, part):
            own = (one for one, value in vars(place).items() if getattr(value, "__module__", "") == module)
            public = [one for one in own if not one.startswith("_")]
            hint = f"it has {', '.join(public[:12])}" if public else "it has no function at all"
            raise CanNotCallError(f"{module} has no {attribute}", hint)
        place = getattr(place, part)
    if not callable(place):
        raise CanNotCallError(f"it is not a function but {type(place).__name__}", "name a function")
    function: Callable[..., Any] = place
    return function


def asks(function: Callable[..., Any]) -> list[str]:
    """The names of the arguments that it asks for. Raises `CanNotCallError` for those that nothing fills."""
    kinds = inspect.Parameter
    parameters = [one for one in inspect.signature(function).parameters.values() if one.kind is not kinds.VAR_KEYWORD]
    known = ", ".join(ARGUMENTS)
    for one in parameters:
        unknown = one.name not in ARGUMENTS and one.default is kinds.empty and one.kind is not kinds.VAR_POSITIONAL
        if unknown or one.kind is kinds.POSITIONAL_ONLY:
            raise CanNotCallError(f"nothing fills its parameter {one.name!r}", f"it may ask for: {known}")
    asked = [one.name for one in parameters if one.name in ARGUMENTS]
    if not set(asked) & set(PLACES):
        hint = "give it a parameter `port`, `address` (host:port) or `socket` (a path)"
        raise CanNotCallError("it does not ask where to listen", hint)
    return asked


async def _awaited(result: Any) -> None:
    await result


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
