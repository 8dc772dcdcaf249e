"""The command line `epp-conformance`: one file per command.

    app.py      the commands put together            options.py   flags that several commands share
    console.py  what is printed, and how             progress.py  what is shown while a run goes on
    interrupt.py  Ctrl-C and its kin
    run_and_report.py  a run from its settings to its report, for `run` and `certify`

Exit codes: 0 conformant, 1 non-conformant, 2 wrong use, 3 harness error, or a problem of the machine, 4 incomplete.
"""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from collections.abc import Sequence

from conformance.cli.console import err
from conformance.cli.interrupt import interruptible, nothing_to_interrupt
from conformance.cli.streams import prepare, reader_is_gone

DEFECT, INCOMPLETE, USAGE = 3, 4, 2
CTRL_C = 130
"""What typer makes of it."""


def main() -> None:
    """The entry point: runs the command line and exits. SIGTERM and a terminal that is closed are taken as Ctrl-C is:
    all is cleaned up."""
    if sys.platform == "win32":
        sys.stderr.write("error: Windows is not supported\n  hint: run it in WSL 2 or in a container\n")
        sys.exit(USAGE)
    prepare()
    if os.environ.get("COLUMNS") == "0":  # what some terminals without a size say; nothing would be printed
        del os.environ["COLUMNS"]
    interruptible()
    code = call(sys.argv[1:])
    nothing_to_interrupt()
    sys.exit(code)


def call(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code, with `--debug` or without. That adds the traceback of an error."""
    debug = "--debug" in arguments
    try:
        _refuse_empty(arguments)
        return _invoke([one for one in arguments if one != "--debug"])
    except KeyboardInterrupt:
        err().print("interrupted")
        return INCOMPLETE
    except (
        BrokenPipeError,
        SystemExit,
    ):  # typer and rich end so when the reader went away: `epp-conformance list | head`
        reader_is_gone(sys.stdout)
        return 0
    except Exception as problem:  # noqa: BLE001 - each has its exit code, and Python's own would be 1
        if debug:
            traceback.print_exception(problem)
        return _show(problem)


def _refuse_empty(arguments: Sequence[str]) -> None:
    """An empty word is a variable of the shell that is not set. As a path it would be the working folder: another
    report would be shown, or written over."""
    from conformance.errors import UsageError

    for before, word in itertools.pairwise(("", *arguments)):
        flag = word[:-1] if word.startswith("--") and word.endswith("=") else before if before.startswith("-") else ""
        if not word or (word.startswith("--") and word.endswith("=")):
            what = f"what is given for {flag}" if flag else "an argument"
            raise UsageError(f"{what} is empty", hint="is a variable of the shell not set?")


def _invoke(arguments: list[str]) -> int:
    import typer

    from conformance.cli.app import app

    try:
        code = app(args=arguments, prog_name="epp-conformance", standalone_mode=False)
    except typer.Exit as ended:
        code = ended.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    if code == CTRL_C:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _show(problem: Exception) -> int:
    from conformance.cli.console import show_defect, show_error
    from conformance.errors import ConformanceError, HarnessError, UsageError

    if isinstance(problem, PermissionError) and problem.filename is not None:  # such as a path in a closed folder
        hint = "may this user read or write it, and enter each folder above it?"
        problem = UsageError(f"{problem.filename}: {problem.strerror}", hint=hint)
    elif isinstance(problem, OSError) and problem.strerror is not None and not isinstance(problem, ConnectionError):
        where = f"{problem.filename}: " if problem.filename is not None else ""
        hint = "a problem of this machine: is there room, may it be written there? --debug shows what was done"
        problem = HarnessError(f"{where}{problem.strerror}", hint=hint)
    if isinstance(problem, ConformanceError):
        show_error(problem)
        return problem.exit_code
    if (show := getattr(problem, "show", None)) is not None:  # typer's own: wrong flags and values
        problem.message = problem.message.removeprefix("Value error, ")  # type: ignore[attr-defined]
        show()
        return USAGE
    show_defect(problem)
    return DEFECT
