"""Flags of commands: the groups that `conformance.targets.flags` declares, and others that several commands share."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from conformance.cli.completion import OFFERED, offering
from conformance.targets.flags import Flag, SelectionFlags, TargetFlags, flags

GROUPS = (TargetFlags, SelectionFlags)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Taken:
    """Beside a group of flags in an annotation: the ones that the command takes, where it does not take them all."""

    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def takes(self, flag: Flag) -> bool:
        """Whether a flag of the group is taken."""
        return flag.name not in self.without and (not self.only or flag.name in self.only)


def spelt_out(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the flags of its groups in their place, each a parameter as typer wants it.

    A parameter `target: TargetFlags`, or `Annotated[TargetFlags, Taken(…)]`, becomes the group's flags.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[Any], list[str]]] = {}
    hints = typing.get_type_hints(command, include_extras=True)
    for parameter in inspect.signature(command).parameters.values():
        kind, *notes = typing.get_args(hints[parameter.name]) or [hints[parameter.name]]
        if kind not in GROUPS:
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=parameter.KEYWORD_ONLY))
            continue
        taken = [flag for flag in flags(kind) if all(note.takes(flag) for note in notes)]
        groups[parameter.name] = (kind, [flag.name for flag in taken])
        parameters += map(_parameter, taken)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {name: group(**{flag: given.pop(flag) for flag in names}) for name, (group, names) in groups.items()}
        command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _parameter(flag: Flag) -> inspect.Parameter:
    kind: Any = types.GenericAlias(list, (flag.type,)) if flag.repeated else flag.type
    hint: Any = kind if flag.default is not None else kind | None
    names = [flag.option, *([f"-{flag.short}"] if flag.short else [])]
    complete = offering(OFFERED[flag.name]) if flag.name in OFFERED else None
    option = typer.Option(
        *names,
        metavar=flag.metavar,
        help=flag.help,
        min=flag.minimum,
        max=flag.maximum,
        autocompletion=complete,
    )
    return inspect.Parameter(
        flag.name, inspect.Parameter.KEYWORD_ONLY, default=flag.default, annotation=Annotated[hint, option]
    )


Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        max=16,
        help="Targets that run side by side, where we start them; default: one per core and 4, at most 12.",
    ),
]
PropertyExamples = Annotated[
    int, typer.Option("--property-examples", metavar="N", min=0, help="Generated conversations to try, afterwards.")
]
Waivers = Annotated[
    Path | None, typer.Option("--waivers", metavar="FILE", help="Known failures that do not fail the run.")
]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where the report goes.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours (as NO_COLOR=1).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only failures and the summary.")]

DEFAULT_OUTPUT = Path("conformance-report")
