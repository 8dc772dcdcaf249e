"""What is printed, as its readers take it: shells that stop reading, and CI systems that take lines as orders."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.cli.console import out

pytestmark = pytest.mark.program

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


ORDER = re.compile(r"\s*::[a-z-]+( .*)?::|.*##(vso)?\[")
"""Lines that GitHub's runner or Azure's agent takes as orders; blanks before GitHub's change nothing."""

DIES = """
import sys
print("::stop-commands::x\\n  ::error file=a.py,line=1::not you\\nsaid ##vso[task.complete]ok ##[error]too")
print("result       \u2713 conformant")
sys.exit(3)
"""


@pytest.mark.parametrize("command", ["run -k destination.chat -o dies", "profile check"])
def test_output_of_a_target_is_no_command_to_a_ci_system(folder: Path, command: str) -> None:
    (folder / "dies.py").write_text(DIES)
    said = shell(f"{COMMAND} {command} --epp 'cmd:{sys.executable} dies.py {{port}} {{endpointsFile}}' 2>&1", folder)
    assert "stop-commands" in said
    assert [line for line in said.splitlines() if ORDER.match(line)] == []
    assert not any(line.startswith("result       \u2713") for line in said.splitlines()), "nor the suite's own words"


def test_no_wrapped_line_becomes_a_command_to_a_ci_system(capsys: pytest.CaptureFixture[str]) -> None:
    console = out()
    console.print("x" * 79, "::error title=a::b", soft_wrap=False, width=80)
    console.print("\t::add-mask::conformant\n\x1b[1m  ::warning::bold")
    console.print("::1 and [::1]:80 are addresses, and ::std::fmt a path")
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if ORDER.match(line)] == []
    assert "::1 and [::1]:80 are addresses" in said
    assert r":\x3aerror title=a::b" in said
