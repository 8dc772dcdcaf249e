"""Groups of commands that suggest the right one for a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from typer.core import TyperGroup

MEANT: Mapping[str, tuple[str, ...]] = {
    "run": ("test", "start", "check", "conformance"),
    "diff": ("compare", "cmp", "difference"),
    "show": ("print", "view", "open", "cat", "display"),
    "verify": ("validate", "check", "audit"),
    "convert": ("export", "render", "html", "junit"),
    "list": ("ls", "scenarios", "requirements", "catalogue"),
    "explain": ("describe", "why"),
    "init": ("new", "create", "make"),
    "new": ("init", "create", "make"),
    "lint": ("check", "validate", "verify"),
    "check": ("validate", "lint", "verify", "test"),
    "doctor": ("diagnose",),
    "kube": ("kubernetes", "k8s"),
    "pool": ("fleet", "modelserver", "model-servers"),
    "tap": ("listen", "sniff"),
    "selftest": ("self-test", "mutants", "faults"),
    "certify": ("submit", "certification"),
    "suggest": ("new", "init", "create"),
}
"""Other words for a command, by the command."""


class Commands(TyperGroup):
    """A group that names the command that was probably meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with. Ends with an error of wrong use if there is none."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            meant = self._meant(ctx, args[0])
            better = f" Did you mean '{ctx.command_path} {meant}'?" if meant else ""
            ctx.fail(f"No such command '{args[0]}'.{better}")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: Any, name: str) -> str | None:
        here = self.list_commands(ctx)
        inside = [(group, command) for group in here for command in self._inside(ctx, group)]
        found = [command for command in here if name.casefold() in MEANT.get(command, ())]
        found += [f"{group} {command}" for group, command in inside if name == command]
        run = self.get_command(ctx, "run")
        found += [f"run --{name}" for one in (run.params if run else ()) if f"--{name}" in one.opts]
        known = [f"{group} {command}" for group, command in inside if name.casefold() in MEANT.get(command, ())]
        found += known if len(known) == 1 else ()
        found += difflib.get_close_matches(name, here, n=1)
        return next(iter(found), None)

    def _inside(self, ctx: Any, name: str) -> list[str]:
        command = self.get_command(ctx, name)
        return command.list_commands(ctx) if isinstance(command, TyperGroup) else []
