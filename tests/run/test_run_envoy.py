"""Scenarios through a real Envoy: the right target passes, wrong ones are caught, and trouble with Envoy is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import needs_envoy

from conformance.cli import call
from conformance.evidence.store import read_evidence
from conformance.planning.plan import Selection
from conformance.run.data_plane.plane import chosen
from conformance.run.session import RunSettings, run
from conformance.targets.ports import free_port
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import Verdict
from ext_proc.http2.tls import self_signed
from ext_proc.record import ClientResponse, StreamOpened
from real_envoy import VARIANTS

pytestmark = pytest.mark.program


EPP = f"cmd:{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}}"


@pytest.fixture
def suite(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str, dict]]:
    """`run` through a data plane: its exit code, what it printed, and its report (empty if there is none)."""

    def conduct(plane: str, *arguments: str) -> tuple[int, str, dict]:
        capfd.readouterr()
        code = call(["run", "-q", "--data-plane", plane, "-o", str(tmp_path / "r"), *arguments])
        printed = capfd.readouterr()
        file = tmp_path / "r/report.json"
        return code, printed.out + printed.err, json.loads(file.read_text()) if file.exists() else {}

    return conduct


def verdicts(report: dict) -> dict[str, str]:
    return {row["id"]: row["verdict"] for row in report["results"]}


def client_statuses(folder: Path) -> set[int | None]:
    """What the clients of a run got."""
    episodes = [line.read()[0] for line in read_evidence(folder / "r/evidence.ndjson.gz")]
    return {event.status for episode in episodes for _, event in episode.of(ClientResponse)}


# -- right and wrong targets -------------------------------------------------------------------------------------------


@needs_envoy
def test_the_smoke_set_and_scenarios_with_special_envoy_behaviour_pass(suite, tmp_path: Path) -> None:
    code, printed, report = suite(
        "envoy",
        *(
            "--smoke",
            "-k",
            "destination.every-connection",
            "-k",
            "streaming.token-by-token",
            "-k",
            "robustness.client*",
        ),
        *("-k", "destination.walks-the-list", "-k", "served.after-a-failure", "-k", "ext-proc.grpc-body"),
    )
    assert code == 4, printed  # a selection gives no full verdict
    assert report["environment"]["topology"]["dataPlane"] == "envoy"
    assert set(verdicts(report).values()) <= {"pass", "notApplicable"}, printed
    assert call(["report", "verify", str(tmp_path / "r")]) == 0
    assert "--data-plane envoy" in report["plan"]["command"]


@needs_envoy
@pytest.mark.parametrize(
    ("scenario", "why"),
    [
        ("served.variants", "reports the endpoint that served"),
        ("ext-proc.duplicate-end", "sends no such messages"),
        ("subset.on-headers-only", "sends the same metadata on every message"),
        ("robustness.unread", "reads from every connection"),
        ("ext-proc.local-reply", "gets its responses from pods that can be reached"),
    ],
)
def test_scenarios_impossible_for_envoy_have_a_reason(suite, scenario: str, why: str) -> None:
    _, _, report = suite("envoy", "-k", scenario)
    assert report["results"]
    for row in report["results"]:
        assert (row["verdict"], row["reason"]) == ("notApplicable", f"a real Envoy (envoy) {why}")


@needs_envoy
@pytest.mark.parametrize(
    ("fault", "scenario", "accused"),
    [
        ("no-header", "destination.completion", "EPP-DEST-01"),
        ("metadata-differs", "destination.completion", "EPP-DEST-05"),
        ("subset-ignored", "subset.pick-stays-inside", "EPP-SUB-01"),
        ("empty-message", "destination.completion", "ENV-01"),
        ("no-end-of-stream", "ext-proc.end-of-stream", "ENV-05"),
        ("events-held-back", "streaming.token-by-token", "EPP-STRM-02"),
        ("dies-when-aborted", "robustness.client-gone", "ENV-22"),
    ],
)
def test_faults_are_caught_for_the_requirement_they_break(fault: str, scenario: str, accused: str) -> None:
    plane = chosen("envoy")
    profile = load_profile(REFERENCE)
    start = profile.start.model_copy(update={"command": (*profile.start.command, f"--fault={fault}")})
    timeouts = profile.timeouts.model_copy(update={"answer": 5.0, "convergence": 1.0, "scrape": 1.0})
    profile = profile.model_copy(update={"start": start, "timeouts": timeouts, "body_modes": ("full-duplex",)})
    version = "next" if accused == "EPP-STRM-02" else "1.0.0"
    settings = RunSettings(
        profile=profile, versions=(version,), data_plane=plane, selection=Selection(scenarios=(scenario,)), jobs=1
    )
    outcome = run(settings, lambda _: None)
    findings = [one for row in outcome.versions[0].results for one in row.findings]
    assert {one.requirement for one in findings if one.verdict is Verdict.FAIL} == {accused}
    assert not [row for row in outcome.versions[0].results if row.verdict is Verdict.ERROR]


@needs_envoy
def test_the_target_may_speak_tls_and_want_an_authority_and_metadata(suite, tmp_path: Path) -> None:
    identity = self_signed(tmp_path, names=("epp.example",))
    profile = tmp_path / "profile.yaml"
    profile.write_text(
        "name: picky\ndiscovery: {file: {reread: 0.15}}\nstart: {command: [unused]}\ntls: {mode: unverified}\n"
        "connect: {authority: 'epp.example:9002', metadata: {x-share: 50%}}\n"
    )
    flags = f"--tls-cert={identity.certificate} --tls-key={identity.key}"
    code, printed, report = suite(
        "envoy", "--profile", str(profile), "--epp", f"{EPP} {flags}", "-k", "destination.ch*"
    )
    assert set(verdicts(report).values()) == {"pass"}, printed
    assert code == 4
    lines = read_evidence(tmp_path / "r/evidence.ndjson.gz")
    heads = [event for line in lines for _, event in line.read()[0].of(StreamOpened)]
    assert {dict(head.headers)[b":authority"] for head in heads} == {b"epp.example:9002"}
    assert {dict(head.headers)[b"x-share"] for head in heads} == {b"50%"}
    assert not any(b"x-epp-conformance-exchange" in dict(head.headers) for head in heads)


@needs_envoy
@pytest.mark.parametrize(("flags", "status"), [("--max-endpoints 1", 200), ("--max-endpoints 2", 503)])
def test_envoy_ai_gateway_behaves_as_reported(suite, tmp_path: Path, flags: str, status: int) -> None:
    """Its ORIGINAL_DST cluster dials one endpoint and no list; its bodies are buffered, and responses streamed."""
    _, printed, report = suite("envoy:envoy-ai-gateway", "--epp", f"{EPP} {flags}", "-k", "destination.chat")
    assert client_statuses(tmp_path) == {status}, printed
    routing = {one["way"]: one["works"] for one in report["versions"][0]["envoyAiGateway"]["routing"]}
    assert routing == {"original-dst": "yes" if status == 200 else "no", "override-host": "yes"}
    assert report["environment"]["topology"]["bodyModes"] == ["buffered"]


@needs_envoy
@pytest.mark.parametrize(("flags", "verdict"), [("--max-endpoints 1", "pass"), ("--max-endpoints 2", "skipped")])
def test_a_target_that_the_variant_can_not_follow_is_not_accused(suite, flags: str, verdict: str) -> None:
    """An ORIGINAL_DST cluster answers a list with its own 503, whatever the scenario wants of the model server."""
    _, printed, report = suite(
        "envoy:original-dst-header", "--epp", f"{EPP} {flags}", "-k", "ext-proc.response-headers-kept[status=200]"
    )
    assert list(verdicts(report).values()) == [verdict], printed


def test_the_documentation_has_every_variant() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/real-envoy.md").read_text()
    assert [name for name in VARIANTS if f"`envoy:{name}`" not in page] == []


# -- trouble -----------------------------------------------------------------------------------------------------------


def program(path: Path, text: str) -> Path:
    """An Envoy that says its version and does `text` else."""
    said = "envoy  version: 9e55809/1.40.0/Clean/RELEASE/BoringSSL"
    path.write_text(f"#!{sys.executable}\nimport sys\nif '--version' in sys.argv: print({said!r}); sys.exit(0)\n{text}")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("plane", "envoy", "words"),
    [
        ("envoy", "{tmp}/nowhere", "there is no such file"),
        ("envoy", "{tmp}/other-machine", "not a program for this machine"),
        ("envoy:override-hosts", "", "did you mean 'envoy:override-host'?"),
        ("nginx", "", "there is no data plane 'nginx'"),
    ],
)
def test_no_envoy_that_runs_here_is_wrong_use(
    suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plane: str, envoy: str, words: str
) -> None:
    other = tmp_path / "other-machine"
    other.write_bytes(b"\x7fELF" + bytes(60))
    other.chmod(0o755)
    if envoy:
        monkeypatch.setenv("EPP_ENVOY", envoy.format(tmp=tmp_path))
    code, printed, report = suite(plane, "--smoke")
    assert code == 2, printed
    assert words in printed
    assert not report


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "print('field upstreams: unknown', file=sys.stderr); sys.exit(1)",
            "refuses the configuration: field upstreams",
        ),
        ("if 'validate' in sys.argv: sys.exit(0)\nprint('out of luck'); sys.exit(3)", "out of luck"),
    ],
)
def test_an_envoy_that_does_not_start_is_trouble_of_ours(
    suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setenv("EPP_ENVOY", str(program(tmp_path / "envoy", text)))
    code, printed, _ = suite("envoy", "-k", "destination.completion")
    assert code == 3, printed
    assert words in printed


@needs_envoy
def test_an_envoy_that_dies_is_started_again_and_nobody_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    from conformance.run.data_plane.envoy import plane as module

    pids: list[int] = []
    start = module.start_envoy

    async def started(*arguments, **options):
        envoy = await start(*arguments, **options)
        pids.append(envoy.pid)
        if len(pids) == 1:
            os.kill(envoy.pid, signal.SIGKILL)
            await envoy.exited
        return envoy

    monkeypatch.setattr(module, "start_envoy", started)
    settings = RunSettings(
        profile=load_profile(REFERENCE),
        data_plane=chosen("envoy"),
        selection=Selection(scenarios=("destination.chat",)),
        jobs=1,
    )
    outcome = run(settings, lambda _: None)
    assert {row.verdict for row in outcome.versions[0].results} == {Verdict.PASS}
    assert len(pids) >= 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@needs_envoy
def test_a_target_out_of_reach_is_told_as_without_envoy(suite) -> None:
    endpoint = f"127.0.0.1:{free_port('127.0.0.1')}"
    code, printed, _ = suite("envoy", "--epp", "127.0.0.1:1", "--endpoints", endpoint, "--smoke")
    assert code == 4, printed
    assert "127.0.0.1:1: connection refused" in printed


@needs_envoy
def test_generated_conversations_need_the_fake(suite) -> None:
    code, printed, _ = suite("envoy", "--smoke", "--property-examples", "3")
    assert code == 2
    assert "leave out --property-examples or --data-plane" in printed
