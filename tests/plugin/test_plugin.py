"""The pytest plugin: inert unless a target is named; items, invariants, failures, fixtures, and workers."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

pytestmark = pytest.mark.program

FEW = ("--epp-scenario", "destination.completion", "--epp-scenario", "subset.nobody", "--epp-body-mode", "full-duplex")
FAULT = (
    f"cmd:{sys.executable} -m reference_epp --fault metadata-differs --listen 127.0.0.1:{{port}} "
    "--endpoints-file {endpointsFile} --log-level error"
)


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    return {name: count for name, count in result.parseoutcomes().items() if name not in ("warnings", "seconds")}


# -- unused ------------------------------------------------------------------------------------------------------------


def test_nothing_is_loaded_when_it_is_not_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_what_is_loaded(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("epp-conformance")
            ours = {name for name in sys.modules if name.partition(".")[0] in {
                "conformance", "ext_proc", "fake_proxy", "fake_epp", "fake_modelserver", "fake_kubernetes"}}
            options = {"conformance.pytest_plugin.options", "conformance.targets", "conformance.targets.flags"}
            assert ours == {"conformance", "conformance.pytest_plugin", *options}
            assert not {"grpc", "pydantic", "yaml", "uvloop", "google.protobuf", "typer"} & set(sys.modules)
        """
    )
    outcome = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            str(pytester.path),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout


def test_without_a_target_there_are_no_items_and_no_fixtures(run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass\ndef test_theirs(proxy): pass")
    result = run("-q")
    assert outcomes(result) == {"passed": 1, "errors": 1}
    result.stdout.fnmatch_lines(
        ["*fixture 'proxy' not found*", "*the fixture 'proxy' needs a target: --epp TARGET or --epp-profile FILE|NAME*"]
    )


# -- items -------------------------------------------------------------------------------------------------------------


def test_one_item_per_scenario_and_per_invariant_in_the_plans_order(run) -> None:
    result = run("--epp", "reference", *FEW, "--collect-only", "-q")
    ids = [line for line in result.outlines if line.startswith("epp-conformance::")]
    scenarios = [name for name in ids if "::invariant::" not in name]
    assert {name.partition("[")[0] for name in scenarios} == {
        "epp-conformance::destination.completion",
        "epp-conformance::subset.nobody",
    }
    assert ids[: len(scenarios)] == scenarios
    assert "epp-conformance::invariant::EPP-DEST-05" in ids[len(scenarios) :]


def test_the_plans_order_is_kept_whatever_others_do(run, pytester: pytest.Pytester) -> None:
    def ids() -> list[str]:
        lines = run("--epp", "reference", *FEW, "--collect-only", "-q").outlines
        return [line for line in lines if line.startswith("epp-conformance::")]

    planned = ids()
    pytester.makeconftest("def pytest_collection_modifyitems(items): items.reverse()")
    assert ids() == planned != []


@pytest.mark.smoke
def test_a_run_with_a_report(run, pytester: pytest.Pytester) -> None:
    result = run("--epp", "reference", *FEW, "--epp-report", "out", "--junitxml", "j.xml", "--epp-seed", "11")
    assert result.ret == 0
    counts = outcomes(result)
    assert set(counts) <= {"passed", "skipped"}
    result.stdout.fnmatch_lines([f"collected {sum(counts.values())} items"])
    result.stdout.fnmatch_lines(
        ["epp-conformance: target reference, protocol 1.0.0, seed 11", "*Endpoint Picker Protocol*"]
    )
    report = json.loads((pytester.path / "out" / "report.json").read_text())
    assert {row["verdict"] for row in report["results"]} == {"pass"}
    assert report["evidence"]["episodes"] == len(report["results"])
    cases = ET.parse(pytester.path / "j.xml").iter("testcase")
    properties = {p.get("name"): p.get("value") for case in cases for p in case.iter("property")}
    assert {"verdict", "requirement"} <= set(properties)


def test_a_failure_shows_the_block_and_no_traceback(run, pytester: pytest.Pytester) -> None:
    result = run("--epp", FAULT, "--epp-scenario", "destination.list", "--epp-scenario", "subset.nobody")
    assert result.ret == 1
    counts = outcomes(result)
    assert counts["failed"] == 2  # the scenario about it, and the invariant; no other item
    result.stdout.fnmatch_lines(
        [
            "*EPP-DEST-05*destination.list*",
            "requires*",
            "expected*",
            "actual*",
            "conversation*",
            "*▶*",
            "hint*",
            "reproduce*epp-conformance run --epp *",
            "FAILED epp-conformance::destination.list*",
            "FAILED epp-conformance::invariant::EPP-DEST-05*",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert "items.py" not in result.stdout.str()


def test_selecting_with_pytests_own_means(run) -> None:
    result = run("--epp", "reference", *FEW, "-k", "EPP-SUB-02 and not invariant", "-v")
    assert outcomes(result) == {"passed": 1, "deselected": result.parseoutcomes()["deselected"]}
    result.stdout.fnmatch_lines(["epp-conformance::subset.nobody PASSED*"])


@pytest.mark.parametrize(
    ("target", "said"),
    [("reference", "what was run breaks none"), (FAULT, "broken: invariant::EPP-DEST-05")],
)
@pytest.mark.parametrize("distributed", [(), ("-n", "2")], ids=["alone", "workers"])
def test_invariants_deselected_by_k_are_reported(run, target: str, said: str, distributed) -> None:
    result = run("--epp", target, *FEW, "--epp-scenario", "destination.list", "-k", "subset.nobody", *distributed)
    assert (result.ret, outcomes(result).get("failed")) == (0, None)
    assert outcomes(result)["passed"] == 1
    result.stdout.fnmatch_lines([f"deselected * invariants, rules that hold over all scenarios; {said}*"])


def test_a_single_invariant_runs_the_scenarios_that_it_judges(run) -> None:
    result = run("--epp", "reference", *FEW, "-k", "EPP-DEST-05 and invariant")
    assert outcomes(result)["passed"] == 1


def test_several_versions(run) -> None:
    versions = ("--epp-protocol-version", "0.3.0", "--epp-protocol-version", "1.0.0")
    result = run(
        "--epp", "reference", "--epp-scenario", "subset.nobody", "--epp-body-mode", "full-duplex", *versions, "-v"
    )
    assert result.ret == 0
    for version in ("0.3.0", "1.0.0"):
        result.stdout.fnmatch_lines([f"epp-conformance::{version}::subset.nobody PASSED*"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--epp", "py:thing"), "*no kind of target*"),
        (("--epp", "127.0.0.1:9"), "*--epp-endpoints-file PATH*--epp-profile FILE*"),
        (("--epp-profile", "gie-epp-15"), "*did you mean 'gie-epp-1.5'*"),
        (("--epp", "reference", "--epp-scenario", "subset.nobdy"), "*did you mean 'subset.nobody'*"),
        (("--epp", "reference", "--epp-scenario", "subset.nobdy", "-n", "2"), "*did you mean 'subset.nobody'*"),
        (("--epp", ""), "*what is given for --epp is empty*"),
        (("--epp", "reference", "--epp-report", "taken/x"), "*no report can be written*"),
    ],
)
def test_wrong_use(run, pytester: pytest.Pytester, arguments: tuple[str, ...], expected: str) -> None:
    (pytester.path / "taken").touch()
    result = run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([expected])
    assert "Traceback" not in result.stderr.str()


def test_a_target_out_of_reach_fails_once(run, pytester: pytest.Pytester) -> None:
    result = run("--epp", "127.0.0.1:1", "--epp-endpoints-file", "endpoints", *FEW)
    counts = outcomes(result)
    assert counts["failed"] == 1
    assert counts["skipped"] > 5
    result.stdout.fnmatch_lines(["*127.0.0.1:1: connection refused*", "scenarios * inconclusive*"])
    assert "Traceback" not in result.stdout.str()


def test_a_program_that_is_missing_fails_once(run, pytester: pytest.Pytester) -> None:
    """As an extra does that a profile needs and that is not installed."""
    result = run("--epp", "cmd:./no-such-epp --port {port} --file {endpointsFile}", *FEW)
    counts = outcomes(result)
    assert counts["failed"] == 1
    assert counts["skipped"] > 5
    result.stdout.fnmatch_lines(["*there is no file *no-such-epp*"])


@pytest.mark.parametrize("selected", ["subset.nobody", "invariant and EPP-DEST-05"])
def test_a_target_that_does_not_start_fails_also_when_its_item_is_run_again(run, pytester, selected: str) -> None:
    """As with `--reruns` of pytest-rerunfailures."""
    pytester.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            for _ in range(3):
                reports = runtestprotocol(item, nextitem=nextitem, log=False)
                if not any(report.failed for report in reports):
                    break
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
            return True
        """
    )
    result = run("--epp", "cmd:false {port} {endpointsFile}", *FEW, "-k", selected)
    assert (result.ret, outcomes(result)["failed"]) == (1, 1)


KILLING = """
import os, signal
from conformance.run.target_runner import TargetRunner

asked = TargetRunner.ends

async def ends(runner):
    os.kill(runner.target._watched.process.pid, signal.SIGKILL)
    await runner.target.given_time_to_end()
    return await asked(runner)

TargetRunner.ends = ends
"""
SERVER = (
    "role: model-server\nname: small\nstart:\n  command: "
    "['{python}', -m, fake_modelserver, serve, --fault=chat-status, '--listen=127.0.0.1:{port}']\n"
)


@pytest.mark.parametrize("distributed", [(), ("-n", "2")])
@pytest.mark.parametrize(
    ("scenario", "failed"),
    [("destination.chat", "invariant::ENV-27"), ("server.chats-with-an-object", "server.chats-with")],
    ids=["epp", "model-server"],
)
def test_a_target_that_ends_after_its_last_scenario_fails(
    run, pytester, scenario: str, failed: str, distributed
) -> None:
    pytester.makeconftest(KILLING)
    (pytester.path / "server.yaml").write_text(SERVER.replace("--fault=chat-status, ", ""))
    target = ("--epp", "reference") if "ENV" in failed else ("--epp-profile", "server.yaml")
    result = run(*target, "--epp-scenario", scenario, *distributed, "--epp-report", "out")
    assert (result.ret, outcomes(result)["failed"]) == (1, 1)
    result.stdout.fnmatch_lines([f"FAILED epp-conformance::{failed}*"])
    report = json.loads((pytester.path / "out" / "report.json").read_text())
    assert sum(row["verdict"] == "fail" for row in report["requirements"]) == 1
    verified = [sys.executable, "-m", "conformance", "report", "verify", "out"]
    assert subprocess.run(verified, cwd=pytester.path, check=False).returncode == 0


# -- fixtures ----------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_fixtures_for_the_users_own_tests(run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from fake_proxy.client import HttpRequest

        def test_pick(proxy, pool):
            sent = proxy.send(subset=["{b}"], headers=[["x-tenant", "gold"]])
            assert sent.status == 200
            assert sent.picked == pool.endpoints["b"]
            assert not sent.violations
            assert {f.requirement for f in sent.findings} > {"EPP-DEST-01", "EPP-SUB-01"}
            assert sent.conversation.messages

        def test_change(proxy, pool):
            pool.add("d", queue=1)
            pool.remove("a")
            pool.set("b", ready=False)
            pool.set("c", queue=9, kv=0.9)
            assert set(pool.eligible) == {*pool.endpoints["c"], *pool.endpoints["d"]}
            request = HttpRequest(method="GET", path="/v1/models")
            assert proxy.send(request, subset=["{d}"]).picked == pool.endpoints["d"]
            assert proxy.send(subset=["{b}"]).status == 503

        def test_clean_again(pool):
            assert set(pool.endpoints) == {"a", "b", "c", "nobody"}
            assert len(pool.eligible) == 3

        def test_target(epp):
            before = epp.address
            epp.restart()
            assert epp.version == "1.0.0"
            assert epp.profile.name == "reference"
            assert isinstance(epp.output, str) and before

        def test_wrong_word(proxy):
            proxy.send(subst=["{b}"])

        def test_wrong_pod(pool):
            pool.set("z", queue=1)

        def test_wrong_pick(proxy):
            assert proxy.send(subset=["{b}"]).picked == ("c",)
        """
    )
    result = run("--epp", "reference", "--epp-fixtures-only")
    assert outcomes(result) == {"passed": 4, "failed": 3}
    result.stdout.fnmatch_lines(
        [
            *("> *proxy.send(subst=*", "E *Failed: subst: unknown key 'subst' (did you mean 'subset'?)"),
            *('> *pool.set("z", queue=1)', "E *no pod 'z'*"),
        ]
    )
    result.stdout.re_match_lines([r".*pods: b: 127\.\S+; c: 127\.\S+; a: .*"])


def test_a_fixture_whose_target_does_not_start_says_why_and_nothing_of_our_code(run, pytester: pytest.Pytester) -> None:
    file = pytester.makepyfile("def test_of_ones_own(pool): pass")
    result = run("--epp", "cmd:false --port {port} --file {endpointsFile}", file)
    assert outcomes(result) == {"errors": 1}
    result.stdout.fnmatch_lines(["*ERROR at setup of test_of_ones_own*", "*exited with 1*"])
    result.stdout.no_fnmatch_line("*traceback entries are hidden*")


def test_fixtures_and_scenarios_take_turns(run, pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(proxy): assert proxy.send().status == 200")
    result = run("--epp", "reference", *FEW)
    assert result.ret == 0
    assert outcomes(result)["passed"] > 4


@pytest.mark.parametrize("distributed", [(), ("-n", "1")], ids=["alone", "worker"])
def test_files_and_tests_that_are_named_run_alone(run, pytester: pytest.Pytester, distributed: tuple[str, ...]) -> None:
    pytester.makepyfile(test_mine="def test_a(proxy): pass\ndef test_b(pool): pass", test_other="def test_c(): pass")
    named = run("--epp", "reference", "test_mine.py", *distributed)
    assert outcomes(named) == {"passed": 2}
    named.stdout.fnmatch_lines(["epp-conformance: no scenarios, only the fixtures"])
    assert outcomes(run("--epp", "reference", "test_mine.py::test_b", *distributed)) == {"passed": 1}
    folder = run("--epp", "reference", *FEW, ".", *distributed)
    assert outcomes(folder)["passed"] > 4
    assert "only the fixtures" not in folder.stdout.str()
    pytester.makeini("[pytest]\ntestpaths = test_mine.py")
    usual = run("--epp", "reference", *FEW, *distributed)
    assert outcomes(usual)["passed"] > 4
    assert "only the fixtures" not in usual.stdout.str()


# -- pytest-xdist ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dist", [pytest.param("load", marks=pytest.mark.smoke), "loadgroup", "worksteal", "loadfile"])
def test_two_workers_share_the_work_and_one_report(run, pytester: pytest.Pytester, dist: str) -> None:
    pytester.makepyfile("def test_mine(proxy): assert proxy.send().status == 200")
    arguments = ("--epp", "reference", "--epp-smoke", "--epp-body-mode", "full-duplex", "--epp-section")
    result = run(*arguments, "endpoint-subset", "-n", "2", "--dist", dist, "--epp-report", "out")
    assert result.ret == 0
    report = json.loads((pytester.path / "out" / "report.json").read_text())
    assert report["evidence"]["episodes"] == len(report["results"])  # nothing was run twice
    counts = outcomes(result)
    universal = sum(row["universal"] and row["role"] == "epp" for row in report["requirements"])
    assert counts["passed"] + counts.get("skipped", 0) == len(report["results"]) + universal + 1


def test_invariants_of_all_workers_are_judged_once(run) -> None:
    result = run("--epp", FAULT, "--epp-scenario", "destination.list", "--epp-scenario", "subset.pick-*", "-n", "2")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["FAILED epp-conformance::invariant::EPP-DEST-05*"])
    assert result.stdout.str().count("FAILED epp-conformance::invariant::EPP-DEST-05") == 1


def test_invariants_of_all_workers_respect_k(run) -> None:
    result = run("--epp", FAULT, *FEW, "-k", "destination.completion or EPP-DEST-05 or EPP-DEST-06", "-n", "2", "-rA")
    told = {line.split()[1] for line in result.stdout.lines if "epp-conformance::invariant::" in line}
    assert told == {"epp-conformance::invariant::EPP-DEST-05", "epp-conformance::invariant::EPP-DEST-06"}
    result.stdout.fnmatch_lines(["FAILED epp-conformance::invariant::EPP-DEST-05*"])


def test_a_shared_target_has_one_worker(run) -> None:
    result = run("--epp", "127.0.0.1:1", "--epp-endpoints-file", "endpoints", *FEW, "-n", "2")
    result.stdout.fnmatch_lines(["epp-conformance: one worker only: *runs already*"])
    assert outcomes(result)["failed"] == 1


# -- gateways ----------------------------------------------------------------------------------------------------------


def test_a_gateway_is_tested_by_its_profile(run, pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("gateway.yaml").write_text(
        "role: data-plane\nname: small\nclaims: {retries: 3, retryStatuses: [503]}\nstart:\n  command: "
        "['{python}', -m, reference_gateway, '--listen=127.0.0.1:{port}', '--epp={epp}', '--endpoints={endpoints}']\n"
    )
    pytester.makepyfile("def test_mine(epp): assert epp.profile")
    result = run("--epp-profile", "gateway.yaml", "--epp-scenario", "gateway.walks-past-two-dead")
    found = outcomes(result)
    assert (found["passed"], found["failed"]) == (6, 1)
    result.stdout.fnmatch_lines(["*small is a gateway: there is no endpoint picker to give*", "*data plane:*"])


def test_a_model_server_is_tested_by_its_profile(run, pytester: pytest.Pytester) -> None:
    (pytester.path / "server.yaml").write_text(SERVER)
    result = run("--epp-profile", "server.yaml", "--epp-scenario", "server.*-with-an-object")
    found = outcomes(result)
    assert (found["passed"], found["failed"]) == (4, 4)
    result.stdout.fnmatch_lines(["*MS-API-02*", "*model server:*"])
