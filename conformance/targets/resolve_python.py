"""From `python:MODULE:FUNCTION` to how the suite starts it: the function is asked, in a child, what it wants."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from conformance.errors import UsageError
from conformance.targets import python_epp
from conformance.targets.profile import Start

PATIENCE = 60.0
"""Seconds that the import of the module may take."""

_EXAMPLE = "for example --epp python:my_epp:serve, for `def serve(port, endpoints_file)` in my_epp.py"


def python_start(text: str) -> Start:
    """The `start` of a target given as `python:MODULE:FUNCTION`, `text` being what comes after `python:`.

    Raises `UsageError` if there is no such function, or it asks for something that nothing fills.
    """
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text):
        raise UsageError(f"python:{text} does not name a function as MODULE:FUNCTION", hint=_EXAMPLE)
    try:
        child = subprocess.run(
            [sys.executable, "-m", python_epp.__name__, "ask", text],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
        answer = json.loads(child.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        what = f"python:{text}: the import of its module takes more than {PATIENCE:g} s"
        raise UsageError(what, hint="a module must not serve before the function is called") from None
    except (ValueError, IndexError):
        last = (child.stderr.strip().splitlines() or [f"it exited with {child.returncode}"])[-1]
        what = f"python:{text}: the import of its module ended the process: {last}"
        raise UsageError(what, hint="a module must not exit when it is imported") from None
    if "error" in answer:
        raise UsageError(f"python:{text}: {answer['error']}", hint=answer["hint"])
    given = (f"{name}={python_epp.ARGUMENTS[name]}" for name in answer["asks"])
    return Start(command=("{python}", "-m", python_epp.__name__, "call", text, *given))
