"""What is printed, as its readers take it: shells that stop reading, and CI systems that take lines as orders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = f"'{sys.executable}' -m conformance"


def shell(line: str, folder: Path) -> str:
    """What bash prints; `$PIPESTATUS` and the like are there."""
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=folder, timeout=60, check=False)
    return ran.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with reports: of a conformant target in `good`, and of one that breaks a rule in `bad`."""
    folder = tmp_path_factory.mktemp("streams")
    fault = "--epp 'cmd:reference-epp --listen=127.0.0.1:{port} --endpoints-file={endpointsFile}"
    for name, flags in (("good", f"{fault}'"), ("bad", f"{fault} --fault=metadata-differs'")):
        shell(f"PATH=$PATH:{Path(sys.executable).parent}; {COMMAND} run {flags} -k destination.chat -o {name}", folder)
    return folder


@pytest.mark.parametrize("command", ["report diff good bad", "report reproduce bad --epp reference", "judge bad"])
def test_a_reader_who_goes_away_does_not_change_the_exit_code(folder: Path, command: str) -> None:
    """As in `set -o pipefail; epp-conformance report diff before after | head`, which must not be green."""
    assert shell(f"{COMMAND} {command} | true; echo ${{PIPESTATUS[0]}}", folder).strip() == "1"


def test_streams_that_are_closed_cost_no_report(folder: Path) -> None:
    shell(f"{COMMAND} run -k destination.chat -o closed >&- 2>&-", folder)
    assert (folder / "closed" / "report.json").is_file()
