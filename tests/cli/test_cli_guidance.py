"""What the command line says leads on: the right command, the missing port, the place that was looked in."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.printable import plural
from conformance.report.document.model import read_report
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import built_in, load

HOSTILE = Path(__file__).parents[1] / "support" / "hostile" / "epps.py"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("report", "compare", "a", "b"), "epp-conformance report diff"),
        (("verify", "x"), "epp-conformance report verify"),
        (("validate",), "epp-conformance"),
        (("rum",), "epp-conformance run"),
        (("watch",), "epp-conformance run --watch'?"),
        (("html",), "epp-conformance report convert'?"),
        (("profile", "new"), "epp-conformance profile init"),
        (("scenario", "check"), "epp-conformance scenario lint"),
    ],
)
def test_a_wrong_command_suggests_the_right_one(cli, arguments: tuple[str, ...], meant: str) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert f"No such command '{arguments[-1] if arguments[0] in ('profile', 'scenario') else ''}" in ran.err
    assert meant in ran.err.partition("Did you mean")[2] or meant == "epp-conformance"


@pytest.mark.parametrize("host", ["localhost", "epp.example.com", "10.0.0.1"])
def test_an_address_without_a_port_lacks_one(cli, host: str) -> None:
    ran = cli("run", "-q", "--epp", host)
    assert ran.code == 2
    assert ran.err == f"error: --epp {host}: the port is missing\n  hint: for example --epp {host}:9002\n"


@pytest.mark.parametrize(
    ("address", "hint"),
    [
        ("127.0.0.1:99999", "ports are 1 to 65535"),
        ("localhost:0", "ports are 1 to 65535"),
        ("http://127.0.0.1:9002/", "it speaks gRPC, at an address: --epp 127.0.0.1:9002"),
    ],
)
def test_an_invalid_address_is_refused_with_the_right_form(cli, address: str, hint: str) -> None:
    ran = cli("run", "-q", "--epp", address)
    assert (ran.code, ran.err.splitlines()[-1]) == (2, f"  hint: {hint}")


@pytest.mark.program
@pytest.mark.parametrize(
    ("mode", "said", "hint"),
    [
        ("html", "the HTTP status is '502', not 200", "is this the right port, and does a proxy stand before the EPP?"),
        ("too_large", "the HTTP status is '431', not 200", "more bytes of header fields than the server takes"),
        ("content_type", "the content type is 'application/json'", "an HTTP server answers there, and not as gRPC"),
    ],
)
def test_an_answer_that_is_not_grpc_is_not_blamed_on_the_endpoints(
    cli, tmp_path: Path, mode: str, said: str, hint: str
) -> None:
    profile = tmp_path / "profile.yaml"
    profile.write_text("discovery: {file: {}}\ntimeouts: {start: 10}\n")
    epp = f"cmd:{sys.executable} {HOSTILE} {{port}} {{endpointsFile}} {mode} 0"
    ran = cli("run", "-q", "-k", "destination.completion", "--profile", profile, "--epp", epp, "-o", tmp_path)
    assert ran.code == 4
    assert f"the answer was not gRPC: {said}" in ran.err
    assert hint in ran.err.partition("hint:")[2]


def test_an_invalid_value_of_a_flag_is_refused_with_the_valid_ones(cli) -> None:
    ran = cli("list", "--format", "xml")
    assert ran.code == 2
    assert "'--format' / '-f': 'xml' is not one of 'table', 'json', 'ids'" in " ".join(ran.err.split())


@pytest.mark.parametrize("program", ["epp.py", "./epp.py", "sh epp.py"])
def test_a_program_is_said_to_need_cmd(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("epp.py").touch()
    ran = cli("run", "-q", "--epp", program)
    assert (ran.code, f"--epp 'cmd:{program} --port {{port}} --endpoints" in ran.err) == (2, True), ran.err


@pytest.mark.parametrize(
    "arguments",
    [("run", "--profile", "no/such.yaml"), ("report", "show", "no/such"), ("run", "-k", "@no/such")],
)
def test_a_missing_file_is_told_with_the_path_and_the_working_folder(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli(*arguments)
    assert ran.code == 2
    assert "no/such" in ran.err
    assert f"the working folder is {tmp_path}" in ran.err


@pytest.mark.program
def test_wrong_use_leaves_no_folder(cli, tmp_path: Path) -> None:
    for arguments in (
        ("--profile", "gie-epp-1.0", "--binary", "./no-such"),
        ("--protocol-version", "0.2.0", "-k", "subset.pick-*"),
    ):
        assert cli("run", *arguments, "-o", tmp_path / "new" / "report").code == 2
        assert not (tmp_path / "new").exists()


def test_a_smoke_run_without_any_smoke_scenario_is_refused(cli, tmp_path: Path) -> None:
    slow = next(one.group for one in load(Catalogue.load()) if one.role == "epp" and not one.scenario.smoke)
    ran = cli("run", "--smoke", "-k", slow, "-o", tmp_path)
    assert ran.code == 2
    assert f"--smoke takes only what is in the smoke set, and none of this is: {slow}" in ran.err


@pytest.mark.parametrize(
    "arguments",
    [("--profile", "{pipe}"), ("--scenarios", "{pipe}"), ("--waivers", "{pipe}"), ("-k", "@{pipe}"),
     ("-k", "@/dev/zero"), ("--scenarios", "/dev/zero"), ("--profile", "/dev/zero"), ("--scenarios", "{large}")],
)  # fmt: skip
def test_a_device_in_place_of_a_file_is_refused_at_once(cli, tmp_path: Path, arguments: tuple[str, str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(300 * 1024 * 1024)
    paths = {"pipe": tmp_path / "pipe", "large": tmp_path / "large.yaml"}
    ran = cli("run", *(one.format(**paths) for one in arguments), "-o", tmp_path / "report")
    assert ran.code == 2
    assert "no regular file" in ran.err or "larger than 1024 KiB" in ran.err


@pytest.mark.parametrize(
    "command",
    [("judge",), ("replay",), ("drift",), ("scenario", "from"), ("scenario", "lint"), ("report", "show"),
     ("report", "verify"), ("report", "matrix"), ("report", "reproduce")],
    ids=" ".join,
)  # fmt: skip
def test_a_pipe_without_a_writer_is_refused_at_once(cli, tmp_path: Path, command: tuple[str, ...]) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    ran = cli(*command, pipe)
    assert ran.code == 2
    assert "pipe" in ran.err
    assert "Traceback" not in ran.err


# -- list --------------------------------------------------------------------------------------------------------------


def listed(cli, *arguments: object) -> list[str]:
    ran = cli("list", "--requirements", "--format", "ids", *arguments)
    assert ran.code == 0, ran.err
    return ran.out.split()


def test_requirements_can_be_listed_by_the_name_of_a_section_that_explain_prints(cli) -> None:
    catalogue = Catalogue.load()
    for name in ("Health Check Services", "ext_proc ImmediateResponse"):
        assert set(listed(cli, "--section", name)) >= {one.id for one in catalogue if one.section == name}
    assert cli("list", "--requirements", "--section", "no such section").code == 2


def test_requirements_are_narrowed_by_what_exercises_them(cli) -> None:
    instances = load(Catalogue.load())
    assert set(listed(cli, "-k", "subset.nobody")) == set(
        next(one for one in instances if one.group == "subset.nobody").scenario.requirements
    )
    smoke = {name for one in instances if one.scenario.smoke for name in one.scenario.requirements}
    assert set(listed(cli, "--smoke")) == smoke


# -- ids from a file, and from the last run ----------------------------------------------------------------------------


def test_ids_come_from_a_file(cli, tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("# mine\nsubset.nobody  # why\n\ndestination.c*\n")
    ran = cli("list", "-k", f"@{tmp_path / 'ids'}", "--format", "ids")
    assert {"subset.nobody", "destination.chat", "destination.completion"} <= set(ran.out.split())
    (tmp_path / "ids").write_text("# nothing\n")
    ran = cli("list", "-k", f"@{tmp_path / 'ids'}")
    assert (ran.code, "names no scenario" in ran.err) == (2, True)


@pytest.mark.smoke
@pytest.mark.program
def test_the_last_failures_are_run_again(cli, a_report: Path, tmp_path: Path) -> None:
    for path in a_report.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    before = json.loads((tmp_path / "report.json").read_text())["results"]
    failed = [row["id"] for row in before if row["verdict"] == "fail"]
    assert 0 < len(failed) < len(before)
    ran = cli("run", "--last-failed", "-q", "-o", tmp_path)
    groups = {name.partition("@")[0] for name in failed}
    assert f"in the report in {tmp_path} {plural(len(groups), 'scenario')} failed" in ran.err
    after = json.loads((tmp_path / "report.json").read_text())["results"]
    assert {row["id"].partition("@")[0] for row in after} == groups
    assert cli("run", "--last-failed", "-k", "subset.nobody", "-o", tmp_path).code == 2


@pytest.mark.program
def test_a_generated_failure_is_waived_run_again_and_reproduced(cli, tmp_path: Path, monkeypatch) -> None:
    """It is no scenario that could be selected: its rules are waived, and its scenario file is in the report."""
    fault = (
        f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}} "
        "--fault metadata-differs --log-level error"
    )
    ran = cli(
        "run", "--epp", fault, "-k", "subset.nobody", "--property-examples", 30, "--seed", 1, "-q", "-o", tmp_path
    )
    assert "generated.conversations" in ran.out
    suggested = cli("waivers", "suggest", tmp_path, "--owner", "me", "--link", "https://example.org/1")
    (tmp_path / "waivers.yaml").write_text(suggested.out)
    assert "pattern: EPP-DEST-05" in suggested.out
    checked = cli("waivers", "check", tmp_path / "waivers.yaml")
    assert (checked.code, checked.out) == (0, "1 waiver, none expired\n")
    assert cli("report", "verify", tmp_path).code == 0
    report = read_report(tmp_path / "report.json")
    reproduce = next(report.reproduce(row) for row in report.results if row.id == "generated.conversations")
    monkeypatch.chdir(tmp_path)
    again = cli(*shlex.split(reproduce)[1:], "-q")
    assert (again.code, "EPP-DEST-05" in again.out) == (1, True), again.err
    ran = cli("run", "--last-failed", "--role", "data-plane", "-o", tmp_path)  # wrong use: what is run is said before
    assert "no scenario failed: everything is run; generated conversations broke rules" in ran.err


@pytest.mark.program
def test_an_honest_report_of_an_epp_that_ends_responses_early_is_verified(cli, tmp_path: Path) -> None:
    """The end of what the model server says is not read then."""
    fault = (
        f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}} "
        "--fault end-of-stream-too-early --log-level error"
    )
    what = ("-k", "ext-proc.large-response", "--body-mode", "full-duplex")
    assert cli("run", "--epp", fault, *what, "-q", "-o", tmp_path).code == 1
    verified = cli("report", "verify", tmp_path)
    assert verified.code == 0, verified.out


def test_waivers_of_the_users_own_scenarios_are_checked(cli, tmp_path: Path) -> None:
    scenarios, waivers = tmp_path / "mine.yaml", tmp_path / "waivers.yaml"
    cli("scenario", "new", "acme.one", "--requirement", "EPP-SUB-01", "-o", scenarios)
    waivers.write_text("waivers: [{pattern: acme.one, reason: r, link: l, owner: o, expires: 2099-01-31}]")
    ran = cli("waivers", "check", waivers)
    assert (ran.code, "names no scenario" in ran.err, "--scenarios" in ran.err) == (2, True, True)
    assert cli("waivers", "check", waivers, "--scenarios", scenarios).code == 0


# -- scenario files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requirement", ["EPP-SUB-01", "DP-DEST-01", "MS-API-01"])
def test_a_new_scenario_is_well_formed(cli, tmp_path: Path, requirement: str) -> None:
    path = tmp_path / "mine.yaml"
    arguments = ("scenario", "new", "acme.one", "--requirement", requirement, "-o", path)
    ran = cli(*arguments)
    assert ran.code == 0, ran.err
    assert "run it: epp-conformance run" in ran.out
    assert cli(*arguments).code == 2  # it is kept
    ran = cli("scenario", "lint", tmp_path)
    assert ran.out.splitlines() == [
        f"acme.one  {path}:{4 + (requirement[0] != 'E')}",
        "1 scenario, 1 instance: well-formed",
    ]
    path.write_text(path.read_text().replace("prompt", "promt").replace("pick", "pik").replace("ask", "aks"))
    ran = cli("scenario", "lint", tmp_path)
    assert ran.code == 2
    assert "did you mean" in ran.err


def test_the_suites_own_scenarios_are_checked_as_they_are(cli) -> None:
    """Those who change them check them by this, too; each is there once."""
    file = built_in() / "subset.yaml"
    ran = cli("scenario", "lint", file, built_in())
    assert (ran.code, ran.err) == (0, "")
    assert "subset.nobody  scenarios/subset.yaml:" in ran.out
    one = cli("scenario", "lint", file)
    assert len(one.out.splitlines()) < len(ran.out.splitlines())


def test_the_suites_own_scenarios_cannot_be_added_again(cli, tmp_path: Path) -> None:
    """They are there already, and a report would hold them twice."""
    ran = cli("run", "--scenarios", built_in(), "-k", "subset.nobody", "-o", tmp_path)
    assert (ran.code, ran.err.count("is taken by")) == (2, 1)
    assert "these are the suite's own scenarios" in ran.err


def test_copies_of_the_suites_own_scenarios_are_reported_once(cli, tmp_path: Path) -> None:
    shutil.copytree(str(built_in()), tmp_path / "copies")
    (tmp_path / "copies" / "mine.yaml").write_text("section: mine\nscenarios: [{id: a.b, titel: T}]\n")
    ran = cli("scenario", "lint", tmp_path / "copies")
    assert ran.code == 2
    taken, *other = [line for line in ran.err.splitlines() if "is taken by" in line or "mine.yaml" in line]
    assert "these are the suite's own scenarios" in taken
    assert other
    assert all("mine.yaml" in line for line in other)  # what else is wrong is said as ever


@pytest.mark.program
def test_a_new_scenario_of_an_epp_passes(cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    cli("scenario", "new", "acme.one", "--requirement", "EPP-SUB-01", "-o", path)
    ran = cli("run", "--scenarios", path, "-k", "acme.one", "-o", tmp_path / "report")
    assert "1 pass" in ran.out, ran.out + ran.err


# -- completion --------------------------------------------------------------------------------------------------------


@pytest.mark.program
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("run --scenario subset.nob", {"subset.nobody"}),
        ("run --requirement EPP-SUB-02", {"EPP-SUB-02"}),
        ("run --profile gie-epp-1.5", {"gie-epp-1.5"}),
        ("run --section endpoint-s", {"endpoint-subset"}),
        ("run --body-mode f", {"full-duplex"}),
        ("run --protocol-version 1", {"1.0.0"}),
        ("explain EPP-SUB-02", {"EPP-SUB-02"}),
        ("profile show gie-epp-1.5", {"gie-epp-1.5"}),
        ("selftest metadata-dif", {"metadata-differs"}),
    ],
)
def test_the_shell_is_offered(typed: str, offered: set[str]) -> None:
    words = f"epp-conformance {typed}"
    environment = {
        **os.environ,
        "_EPP_CONFORMANCE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    command = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'epp-conformance'; from conformance.cli import main; main()",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert set(done.stdout.split()) >= offered, done.stderr
    assert len(done.stdout.split()) <= 3
