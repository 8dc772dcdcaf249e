"""`python -m conformance.mutation SPECIFICATION PROGRAM [ARGUMENT…]`: run a program with a mutation, or probed."""

from __future__ import annotations

import json
import runpy
import sys

from conformance.mutation.runner import install

USAGE = "usage: python -m conformance.mutation SPECIFICATION PROGRAM [ARGUMENT…]"


def main() -> None:
    """Install the hook and run the program as `python -m` would."""
    if len(sys.argv) < 3:
        sys.exit(USAGE)
    try:
        specification = json.loads(sys.argv[1])
    except ValueError as problem:
        sys.exit(f"the specification is not JSON: {problem}\n{USAGE}")
    install(specification)
    program = sys.argv[2]
    sys.argv[:] = sys.argv[2:]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
