"""Fails when a test was skipped: `python nothing_skipped.py JUNIT.XML`. CI has all that the tests need."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET


def skipped(results: Path) -> list[str]:
    """`module::test: reason` for each test in the JUnit file that did not run."""
    return [
        f"{case.get('classname')}::{case.get('name')}: {skip.get('message')}"
        for case in ET.parse(results).iter("testcase")
        for skip in case.iter("skipped")
    ]


def main() -> None:
    """Print what was skipped, and exit with 1 if anything was."""
    tests = skipped(Path(sys.argv[1]))
    if tests:
        sys.exit("\n".join(["These tests must run here, and were skipped:", *tests]))


if __name__ == "__main__":
    main()
