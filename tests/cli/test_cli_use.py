"""Wrong use: each gets a message that says what, where and what to do, no traceback, and exit code 2."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import conformance.cli as command_line
from conformance.cli.streams import SIGNS
from conformance.report.render.folder import reserved
from conformance.targets.flags import TargetFlags
from ext_proc.http2.tls import self_signed

REST = "title: T, requirements: [EPP-SUB-01]"


@pytest.mark.program
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("run", "--bogus"), "No such option"),
        (("rum",), "run"),
        (("run", "--seed", "x"), "--seed"),
        (("run", "--jobs", "0"), "--jobs"),
        (("run", "--epp", ""), "what is given for --epp is empty"),
        (("run", "--profile", ""), "what is given for --profile is empty"),
        (("doctor", "--epp", ""), "what is given for --epp is empty"),
        (
            ("run", "--epp", "py:thing"),
            "known: reference, HOST:PORT, unix:/PATH, cmd:COMMAND, python:MODULE:FUNCTION, image:IMAGE",
        ),
        (("run", "--epp", "127.0.0.1:9"), "--endpoints-file"),
        (("run", "--epp", "cmd:./e {port"), "learns its pool"),
        (("run", "--profile", "gie-epp-15"), "gie-epp-1.5"),
        (("run", "--profile", "no/such/file.yaml"), "no/such/file.yaml"),
        (("run", "--protocol-version", "1.0"), "did you mean '1.0.0'?"),
        (("run", "--body-mode", "fullduplex"), "did you mean 'full-duplex'?"),
        (("run", "--tls", "of"), "plaintext"),
        (("run", "-k", "subset.nobdy"), "did you mean 'subset.nobody'?"),
        (("run", "-k", "nothing.*"), "there is no scenario 'nothing.*'"),
        (("run", "--exclude", "subset.nobdy"), "subset.nobody"),
        (("run", "--requirement", "EPP-SUBS-01"), "did you mean 'EPP-SUB-01'?"),
        (("run", "--level", "MUSTY"), "did you mean 'MUST'?"),
        (("run", "--section", "endpoint-subst"), "did you mean 'endpoint-subset'?"),
        (("run", "-k", "subset.pick-*", "--protocol-version", "0.2.0"), "no scenario of version 0.2.0"),
        (("run", "--profile", "gie-epp-1.0"), "give it with --binary"),
        (("run", "--profile", "gie-epp-1.0", "--binary", "./no-such-epp"), "no-such-epp"),
        (("run", "--binary", "./my-epp"), "--binary has no place in this target"),
        (("list", "--format", "xml"), "xml"),
        (("list", "--protocol-version", "2"), "protocol version"),
        (("report", "show", "no-such-folder"), "no report at no-such-folder"),
        (("judge", "."), "no evidence in the folder /"),
        (("certify", "--epp", "127.0.0.1:9", "--endpoints", "127.0.0.1:8"), "implementation.url"),
        (
            ("tap", "--listen", ":0", "--upstream", "127.0.0.1:9", "--record", "no/f.ndjson"),
            "no/f.ndjson: No such",
        ),
        (("tap", "--listen", ":0", "--upstream", "127.0.0.1:9", "--listen-cert", "no.pem"), "there is no file no.pem"),
        (("tap", "--listen", ":0", "--upstream", "127.0.0.1:9", "--ca", "."), "--ca: . is a folder, not a file"),
        (("tap", "--listen", ":0", "--upstream", "127.0.0.1:9", "--listen-cert", "."), "--listen-cert: . is a folder"),
        (("run", "--epp", "127.0.0.1:9", "--endpoints", "127.0.0.1:8", "--ca", "."), "--ca: . is a folder"),
        (("proxy", "--epp", "127.0.0.1:9", "--subset", "127.0.0.1:8", "--subset", "foo"), "--subset: 'foo' is no end"),
        (("run", "--epp", "127.0.0.1:9", "--endpoints", "127.0.0.1:8", "--ca", "/dev/null"), "not a regular file"),
    ],
)
def test_wrong_use(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli(*arguments)
    assert ran.code == 2
    assert expected in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "conformance-report" / "report.json").exists()


def test_files_for_tls_that_do_not_fit_are_named(cli, tmp_path: Path) -> None:
    one, other = (self_signed(tmp_path, stem=stem) for stem in ("one", "other"))
    (tmp_path / "broken.pem").write_text("no certificate")
    tap = ("tap", "--listen", ":0", "--upstream", "127.0.0.1:9")
    for more, said in (
        (("--listen-cert", one.certificate), f"or {one.certificate} no key"),
        (("--listen-cert", one.certificate, "--listen-key", other.key), "is not that of the certificate in"),
        (("--listen-cert", one.certificate, "--listen-key", one.key, "--client-ca", "broken.pem"), "--client-ca: "),
        (("--tls", "verified", "--ca", tmp_path / "broken.pem"), "broken.pem: it holds no certificate"),
        (("--cert", one.certificate), "add --key, if the key is in a file for itself"),
        (("--cert", one.certificate, "--key", other.key), "--cert: the key in"),
        (("--key", one.key), "add --cert"),
        (("--cert", one.certificate, "--key", one.key, "--tls", "plaintext"), "--cert is not used with --tls plain"),
    ):
        ran = cli(*tap, *more)
        assert ran.code == 2
        assert said in ran.err.replace("\n", " ")


def test_a_kubeconfig_that_can_not_be_written_is_told_with_its_flag(cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = cli("kube", "--kubeconfig", tmp_path / "file" / "kube.yaml")
    assert ran.code == 2
    assert f"can't be written: {tmp_path / 'file'} is a file\n  hint: give another with --kubeconfig" in ran.err


def test_an_unwritable_output_folder_is_refused(cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "report"):
        ran = cli("run", "-k", "subset.nobody", "-o", place)
        assert ran.code == 2
        assert f"no report can be written to {place}" in ran.err
        assert "--output is a folder, and a file is there" in ran.err


def test_a_report_that_can_not_be_written_again_is_said_before_anything_runs(cli, tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    ran = cli("run", "-k", "subset.nobody", "-o", tmp_path)
    assert ran.code == 2
    assert f"no report can be written to {tmp_path / 'report.json'}: Is a directory" in ran.err
    assert "--output" in ran.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("section: mine\nscenarios: [{id: a.b, title: T, requirements: [EPP-SUB-1], steps: [{exchange: {}}]}]\n",
         "mine.yaml:2:48: requirements[0]: there is no requirement 'EPP-SUB-1' (did you mean 'EPP-SUB-01'?)"),
        ("section: mine\nscenarios:\n- {id: a.b, titel: T}\n", "mine.yaml:3:"),
        ("section: mine\nscenarios: [\n", "mine.yaml:3:1:"),
        ("section: mine\nscenarios: []\nsection: twice\n", "mine.yaml:3:1:"),
        ("section: 022\nscenarios: []\n", "mine.yaml:1:10:"),
        (f"section: mine\nscenarios: [{{id: subset.nobody, {REST}, steps: [{{exchange: {{}}}}]}}]\n",
         "is taken by"),
        (f"section: mine\nscenarios: [{{id: a.b, {REST}, steps: [{{exchange: {{subset: ['{{z}}']}}}}]}}]\n",
         "{z} is neither a pod of this scenario nor a variable"),
        (f"section: mine\nscenarios: [{{id: a.b, {REST}, steps: [{{exchange: {{subset: [a]}}}}]}}]\n",
         "a is no endpoint (`{a}` is that of the pod; `hint` takes any text)"),
        (f"section: mine\nscenarios: [{{id: a.b, {REST}, steps: [{{exchange: {{body: {{wide: true}}}}}}]}}]\n",
         "`wide` needs a `size`"),
        (f"section: mine\nscenarios:\n- {{id: a.b, {REST}, steps: [{{exchange: {{gapSeconds: .nan}}}}]}}\n",
         "gapSeconds: expected a number, got .nan"),
    ],
)  # fmt: skip
def test_wrong_scenario_files(cli, tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    ran = cli("run", "--scenarios", tmp_path, "-o", tmp_path / "out")
    assert ran.code == 2
    assert expected in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (" body: {text: hi,\n written: compact}", "mine.yaml:4:2: {}.body.written: 'written' {} `body` beside 'text'"),
        (
            " body: {written: compact, base64: aGk=}",
            "mine.yaml:3:9: {}.body.written: 'written' {} `body` beside 'base64'",
        ),
        (" reply: {json: {}, filler: 9}", "mine.yaml:3:20: {}.reply.filler: 'filler' {} `reply` beside 'json'"),
        (" body: {text: null,\n written: compact}", None),
    ],
)
def test_keys_without_effect_in_a_body_are_refused(cli, tmp_path: Path, part: str, expected: str | None) -> None:
    """Else the request is another than the file says, and the scenario passes."""
    steps = f"steps: [{{exchange: {{\n{part}}}}}]"
    (tmp_path / "mine.yaml").write_text(f"section: mine\nscenarios: [{{id: a.b, {REST}, {steps}}}]\n")
    ran = cli("scenario", "lint", tmp_path)
    assert ran.code == (2 if expected else 0)
    assert (expected or "").format("steps[0].exchange", "has no effect in") in ran.err


def test_all_mistakes_of_a_scenario_file_are_reported_together(cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "section: mine\n"
        "scenarios:\n"
        "  - id: subset.nobody\n"
        "    titel: T\n"
        "    requirements: [EPP-SUB-1]\n"
        "    steps: [{exchange: {subset: ['{z}'], repeat: 0}}]\n"
        "  - {id: a.b, title: T, requirements: [EPP-SUB-01], steps: [{request: {}}], versions: ['2']}\n"
        "  - 7\n"
    )
    ran = cli("run", "--quiet", "--scenarios", tmp_path, "-o", tmp_path / "out")
    said = ran.err.replace(f"{tmp_path}/", "")
    lines = [line.split(":")[1] for line in said.removeprefix("error: ").splitlines()]
    assert lines == ["3", "3", "4", "5", "6", "6", "7", "7", "8"], said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("nothing-like-it", "a glob such as 'subset.*' takes several"),
        ("pick-stays", "'*pick-stays*' matches subset.pick-stays-inside"),
        ("subset.nobodi", "did you mean 'subset.nobody'?"),
        ("zzz.*", "`epp-conformance list` shows them all"),
    ],
)
def test_a_pattern_that_names_no_scenario(cli, tmp_path: Path, pattern: str, hint: str) -> None:
    ran = cli("run", "--quiet", "-k", pattern, "-o", tmp_path / "out")
    assert ran.code == 2
    assert ran.err.startswith(f"error: there is no scenario {pattern!r}\n")
    assert hint in ran.err


def test_a_defect_of_the_suite_is_never_the_targets(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: list[str]) -> int:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(command_line, "_invoke", broken)
    ran = cli("list")
    assert ran.code == 3
    assert "ZeroDivisionError" in ran.err
    assert "a defect of the suite, not of the target" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code"), [(["run", "--profile", "nope.yaml"], 2), (["judge", "nope"], 2), (["list", "--nope"], 2)]
)
def test_debug_adds_the_traceback_and_changes_no_exit_code(cli, tmp_path, monkeypatch, arguments, code) -> None:
    """Python's own would be 1, which says that the target is not conformant."""
    monkeypatch.chdir(tmp_path)
    plain, debugged = cli(*arguments), cli("--debug", *arguments)
    assert (plain.code, debugged.code) == (code, code)
    assert "Traceback (most recent call last):" in debugged.err
    assert debugged.err.splitlines()[-1] == plain.err.splitlines()[-1]


def test_help_is_there_for_every_command(cli) -> None:
    listed = cli("--help").out
    for name in ("run", "list", "explain", "report", "certify", "profile", "doctor", "kube", "pool"):
        assert name in listed
        ran = cli(name, "--help")
        assert ran.code == 0
        assert "Usage: epp-conformance" in ran.out
    assert cli("--version").out.startswith("epp-conformance ")


@pytest.mark.program
def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from conformance.cli import call; call(['run', '--help']);"
        "heavy = {'grpc', 'google.protobuf', 'yaml', 'uvloop', 'rich', 'jinja2', 'asyncio', 'envoy_data_plane'};"
        "heavy |= {'conformance.run', 'conformance.report', 'conformance.targets.resolve'};"
        "sys.exit(f'loaded: {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.program
def test_a_closed_pipe_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "conformance", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert b"Traceback" not in process.stderr.read()


@pytest.mark.program
@pytest.mark.parametrize("arguments", [("judge", "{report}/evidence.ndjson.gz"), ("report", "verify", "{report}")])
def test_a_closed_pipe_changes_no_verdict(program, a_report: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    damaged = tmp_path / "report"
    shutil.copytree(a_report, damaged)
    text = (damaged / "report.json").read_text()
    (damaged / "report.json").write_text(text.replace('"verdict": "fail"', '"verdict": "pass"'))
    process = program(*(one.format(report=damaged) for one in arguments))
    process.stdout.close()
    assert process.wait(timeout=60) == 1
    assert "Traceback" not in process.stderr.read()


@pytest.mark.program
def test_a_full_disk_for_messages_ends_no_run(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "conformance", "run", "-k", "destination.chat", "-o", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=full,
            timeout=120,
            check=False,
        )
        assert ran.returncode == 4
        assert (tmp_path / "report.html").is_file()
        wrong = [sys.executable, "-m", "conformance", "explain", "nope"]
        assert subprocess.run(wrong, stderr=full, timeout=60, check=False).returncode == 2


def test_a_path_that_is_out_of_reach_is_wrong_use(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: list[str]) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", "closed/profile.yaml")

    monkeypatch.setattr(command_line, "_invoke", closed)
    ran = cli("list")
    assert ran.code == 2
    assert ran.err.startswith("error: closed/profile.yaml: Permission denied\n  hint: may this user read or write it")


def test_a_full_disk_is_trouble_of_the_machine(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: list[str]) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "report.json")

    monkeypatch.setattr(command_line, "_invoke", full)
    ran = cli("list")
    assert ran.code == 3
    assert ran.err.startswith("error: report.json: No space left on device\n  hint: a problem of this machine")


@pytest.mark.program
@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"COLUMNS": "0"}])
def test_poor_terminals_get_the_report_too(program, a_report: Path, environment: dict[str, str]) -> None:
    process = program("report", "show", a_report, **environment)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "EPP-DEST-05" in out
    assert err == ""


@pytest.mark.program
@pytest.mark.parametrize("arguments", [("report", "show"), ("report", "show", "--all", "--unsettled")])
def test_signs_that_a_terminal_lacks_are_told_from_each_other(program, a_report: Path, arguments) -> None:
    """None becomes a question mark, which is the sign of what is not known."""
    shown = []
    for encoding in ("utf-8", "ascii"):
        process = program(*arguments, a_report, PYTHONIOENCODING=encoding)
        shown.append(process.communicate(timeout=60)[0])
    assert not shown[0].isascii()
    assert shown[1] == shown[0].translate(str.maketrans(SIGNS))
    assert shown[1].isascii()


@pytest.mark.program
def test_two_runs_write_no_report_together(cli, tmp_path: Path) -> None:
    with reserved(tmp_path):
        ran = cli("run", "--quiet", "-k", "destination.chat", "-o", tmp_path)
    assert (ran.code, ran.err.splitlines()[0]) == (2, f"error: another run is writing its report to {tmp_path}")
    assert not list(tmp_path.iterdir())
    assert cli("run", "-k", "destination.chat", "-o", tmp_path).code == 4


@pytest.mark.program
def test_judging_nothing_is_no_success(cli, a_report: Path, tmp_path: Path) -> None:
    evidence = a_report / "evidence.ndjson.gz"
    ran = cli("judge", evidence, "--exchange", "nope")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: there is no exchange 'nope'")
    (tmp_path / "empty.ndjson").touch()
    ran = cli("judge", tmp_path / "empty.ndjson")
    assert ran.code == 2
    assert "a load keeps only exchanges in which something was found" in ran.err.lower()


@pytest.mark.program
def test_a_file_of_another_kind_is_no_flood(cli, a_report: Path) -> None:
    ran = cli("judge", a_report / "report.json")
    assert ran.code == 2
    assert len(ran.err.splitlines()) < 10
    assert "lines more" in ran.err
    assert "evidence.ndjson.gz" in ran.err


@pytest.mark.program
def test_the_command_that_runs_a_target_again() -> None:
    named = TargetFlags(epp="cmd:./e --port {port}", endpoints=["127.0.0.1:1"], body_mode=["buffered"])
    flags = "--epp 'cmd:./e --port {port}' --endpoints 127.0.0.1:1 --body-mode buffered"
    assert named.command_line() == f"epp-conformance run {flags} -o conformance-reproduced"
    assert TargetFlags().command_line() == "epp-conformance run -o conformance-reproduced"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("run", "--output", ""), "--output"),
        (("run", "-o", ""), "-o"),
        (("list", "--scenarios="), "--scenarios"),
        (("report", "show", ""), "an argument"),
        (("report", "verify", ""), "an argument"),
    ],
)
def test_an_empty_word_is_no_path(cli, tmp_path: Path, monkeypatch, arguments: tuple[str, ...], what: str) -> None:
    """As `"$DIR"` is where it is not set. It would be the working folder: `run` would replace the report there."""
    (tmp_path / "report.json").write_text("of another run")
    monkeypatch.chdir(tmp_path)
    ran = cli(*arguments)
    assert ran.code == 2
    assert f"{what} is empty" in ran.err
    assert (tmp_path / "report.json").read_text() == "of another run"


@pytest.mark.parametrize("target", ["--epp=127.0.0.1:9 --endpoints=127.0.0.1:8001", "--server=https://127.0.0.1:9"])
def test_a_file_without_certificates_is_wrong_use(cli, tmp_path: Path, target: str) -> None:
    """It was taken for a target that can't be reached, after all the time that one is given to start."""
    (tmp_path / "ca.pem").write_text("-----BEGIN NOTHING-----")
    ran = cli("run", *target.split(), "--ca", tmp_path / "ca.pem", "-o", tmp_path / "r")
    assert (ran.code, ran.out) == (2, "")
    assert "ca.pem: it holds no certificate in PEM form" in ran.err
