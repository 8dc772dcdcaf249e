"""`replay` and `scenario from`: recordings of the tap and of reports, sent again and kept as scenarios."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance import strict_yaml
from conformance.tap.judging import JudgingSettings, context
from conformance.tap.redaction import LiveRedaction
from conformance.tap.session import LiveSettings, LiveTap
from ext_proc.channel import dial
from ext_proc.record import Recorder
from fake_epp import open_epp, picks
from fake_proxy.client import Chunk, HttpRequest
from fake_proxy.config import ProxyConfig
from fake_proxy.exchange import run_exchange
from fake_proxy.pace import Pace
from fake_proxy.scripted import ScriptedUpstream, json_reply
from fake_proxy.stimulus import Stimulus, subset_hint

pytestmark = pytest.mark.program

EPP = f"{sys.executable} -m reference_epp --listen 127.0.0.1:{{port}} --endpoints-file {{endpointsFile}}"
RIGHT = ("--epp", f"cmd:{EPP}")
IGNORES_SUBSETS = ("--epp", f"cmd:{EPP} --fault subset-ignored")
A, B = "10.0.0.7:8000", "10.0.0.8:8000"
BODY = b'{"model": "llama-3", "prompt": "recorded", "max_tokens": 16}'
REQUEST = HttpRequest(
    path="/v1/completions",
    body=(Chunk(data=BODY[:30]), Chunk(data=BODY[30:])),
    headers=((b"x-tenant", b"gold"), (b"authorization", b"Bearer x")),
    trailers=((b"x-sum", b"1"),),
)


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Path]:
    """What a tap records between a data plane that sends a subset hint and an EPP that picks `endpoint`."""

    def recorded(endpoint: str = A, **redaction: object) -> Path:
        path = tmp_path / "traffic.ndjson"
        kept = LiveRedaction(**({"body": 1 << 20, "secrets": False} | redaction))

        async def main() -> None:
            epp = await open_epp(default=picks(endpoint))
            judging = JudgingSettings(context=context("1.0.0"), record=path)
            settings = LiveSettings(host="127.0.0.1", port=0, upstream=epp.address, judging=judging, redaction=kept)
            async with LiveTap(settings, show=lambda _: None, warn=lambda _: None) as tap:
                channel = await dial(tap.address)
                config = ProxyConfig()
                stimulus = Stimulus(metadata=subset_hint(config, [A]))
                upstream = ScriptedUpstream(json_reply({"ok": True}))
                await run_exchange(
                    channel, REQUEST, config, stimulus, upstream, Recorder(), "x", pace=Pace(deadline=10)
                )
                await channel.close()
            await epp.close()

        asyncio.run(main())
        return path

    return recorded


@pytest.fixture(scope="module")
def faulty_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of an EPP that ignores subset hints."""
    from conformance.cli import call

    folder = tmp_path_factory.mktemp("faulty")
    chosen = ("-k", "subset.two-of-three", "-k", "destination.completion")
    call(["run", "-q", *IGNORES_SUBSETS, *chosen, "-o", str(folder)])
    return folder


# -- replay ------------------------------------------------------------------------------------------------------------


def test_a_failure_is_still_there_and_then_fixed(cli, faulty_report: Path) -> None:
    ran = cli("replay", faulty_report, *IGNORES_SUBSETS, "-k", "subset.*")
    assert ran.code == 1, ran.err
    assert "✗ still failing" in ran.out
    assert "EPP-SUB" in ran.out
    ran = cli("replay", faulty_report / "evidence.ndjson.gz", *RIGHT, "-k", "subset.*")
    assert ran.code == 0, ran.err
    assert "✓ fixed" in ran.out
    assert "failing" not in ran.out


def test_an_unchanged_conversation_is_reported_as_the_same(cli, faulty_report: Path) -> None:
    ran = cli("replay", faulty_report, *RIGHT, "-k", "destination.completion", "--exact")
    assert ran.code == 0, ran.out + ran.err
    assert "✓ same" in ran.out
    assert "≠" not in ran.out


def test_a_request_refused_by_the_data_plane_is_refused_again(cli, tmp_path: Path) -> None:
    assert cli("run", "-q", *RIGHT, "-k", "ext-proc.refused-before", "-o", tmp_path).code == 4
    ran = cli("replay", tmp_path, *RIGHT)
    assert ran.code == 0, ran.out + ran.err
    assert "✓ same" in ran.out
    assert "≠" not in ran.out
    assert "sent without" not in ran.out


@pytest.mark.parametrize("fault", ["request-id-needed", "untyped-body-is-an-error"])
def test_headers_that_were_left_out_are_left_out_again(cli, tmp_path: Path, fault: str) -> None:
    epp = ("--epp", f"cmd:{EPP} --fault {fault}")
    assert cli("run", "-q", *epp, "-k", "destination.without-usual-headers", "-o", tmp_path).code == 1
    ran = cli("replay", tmp_path, *epp)
    assert ran.code == 1
    assert "✗ still failing" in ran.out


@pytest.mark.parametrize(
    ("fault", "rule"), [("metadata-differs", "EPP-DEST-05"), ("value-for-raw-value", "ENV-11")], ids=str
)
def test_a_new_defect_fails_now(cli, faulty_report: Path, fault: str, rule: str) -> None:
    """Also one that breaks a rule of ext_proc only."""
    ran = cli("replay", faulty_report, "--epp", f"cmd:{EPP} --fault {fault}", "-k", "destination.completion")
    assert ran.code == 1
    assert "✗ fails now" in ran.out
    assert rule in ran.out
    assert "--- recorded" in ran.out


def test_conversations_are_chosen_by_the_rule_that_they_break(cli, faulty_report: Path) -> None:
    broken = cli("judge", faulty_report, "--json").out
    rule = next(json.loads(line)["requirement"] for line in broken.splitlines() if '"EPP-SUB' in line)
    ran = cli("replay", faulty_report, *RIGHT, "--requirement", rule)
    assert ran.code == 0
    fixed = [line for line in ran.out.splitlines() if line.startswith("✓")]
    assert fixed
    assert all(rule in line for line in fixed)
    none = cli("replay", faulty_report, *RIGHT, "--requirement", "EPP-DEST-01")
    assert (none.code, "is chosen that breaks EPP-DEST-01" in none.err) == (2, True)


@pytest.mark.smoke
def test_a_recording_of_the_tap_is_replayed(cli, record) -> None:
    ran = cli("replay", record(), *RIGHT)
    assert ran.code == 0, ran.err
    assert "1 replayed" in ran.out
    ran = cli("replay", record(B), *IGNORES_SUBSETS)
    assert "tap-1" in ran.out


@pytest.mark.parametrize(
    ("redaction", "text"),
    [({"body": 0}, "the record lacks the request's body"), ({"secrets": True}, "authorization was redacted")],
)
def test_a_redacted_record_is_refused_with_what_to_do(cli, record, redaction: dict, text: str) -> None:
    ran = cli("replay", record(**redaction), *RIGHT)
    assert ran.code == 2
    assert text in ran.err
    assert "--keep-secrets" in ran.err


def test_parts_that_cannot_be_replayed_are_listed(cli, record) -> None:
    """One body that was cut, one secret, or one line that is damaged do not cost the other conversations."""
    path = record(body=10)
    with path.open("a") as file:
        file.write("{\n")
    record(secrets=True)
    record()
    ran = cli("replay", path, *RIGHT)
    assert ran.code == 4, ran.out + ran.err
    assert "1 replayed: 1 " in ran.out
    assert "; 3 not sent" in ran.out
    assert "? not sent       tap-1 can't be sent again: the record lacks the request's body" in ran.out
    assert "? not sent       tap-1 can't be sent again: authorization was redacted in the record" in ran.out
    assert f"? not sent       {path}:2: no recorded conversation: " in ran.out
    assert ran.out.count("hint: record it with `tap --keep-bodies BYTES --keep-secrets`") == 1
    broken = cli("replay", path, "--epp", f"cmd:{EPP} --fault value-for-raw-value")
    assert (broken.code, "; 3 not sent" in broken.out) == (1, True)


def test_a_secret_header_comes_from_the_profile(cli, record, tmp_path: Path) -> None:
    path = record(secrets=True)
    profile = tmp_path / "epp.yaml"
    profile.write_text(
        f"start: {{command: {json.dumps(EPP.split())}}}\n"
        "discovery: {file: {}}\n"
        "requests: {secretHeaders: {authorization: Bearer y}}\n"
    )
    ran = cli("replay", path, "--profile", profile)
    assert ran.code == 0, ran.err


def test_records_of_other_roles_and_other_files_are_refused(cli, record, tmp_path: Path) -> None:
    path = record()
    body = json.loads(path.read_text())
    body["context"]["role"] = "data-plane"
    other = tmp_path / "other.ndjson"
    other.write_text(json.dumps(body) + "\n")
    for command in ("replay", other, *RIGHT), ("scenario", "from", other, "-o", tmp_path / "s.yaml"):
        ran = cli(*command)
        assert ran.code == 2
        assert "record of a data-plane" in ran.err
        assert "hint: run the scenarios again" in ran.err
    other.write_text("not a record\n")
    assert "other.ndjson:1: no recorded conversation" in cli("replay", other, *RIGHT).err
    other.write_bytes(gzip.compress(b""))
    assert "there is no conversation" in cli("replay", other, *RIGHT).err
    ran = cli("replay", tmp_path / "missing", *RIGHT)
    assert (ran.code, "No such file" in ran.err) == (2, True)
    assert cli("replay", path, *RIGHT, "--exchange", "nope").code == 2
    assert cli("replay", path, "--profile", "envoy-override-host").code == 2


# -- scenario from -----------------------------------------------------------------------------------------------------


def test_a_recording_becomes_a_scenario_that_catches_the_defect(cli, record, tmp_path: Path) -> None:
    path = record(B)  # which is not in the subset
    own = tmp_path / "my-scenarios" / "own.yaml"  # in a folder that is not there yet
    ran = cli("scenario", "from", path, "-o", own, "--section", "acme")
    assert ran.code == 0, ran.err
    text = own.read_text()
    for said in ("subset:", "- '{a}'", "x-tenant", "prompt: recorded", "x-sum", "chunks:", "EPP-SUB"):
        assert said in text
    assert cli("scenario", "lint", own).code == 0
    arguments = ("run", "-q", "--scenarios", own, "-k", "acme.*", "-o", tmp_path / "r")
    cli(*arguments, *RIGHT)
    assert {row["verdict"] for row in json.loads((tmp_path / "r/report.json").read_text())["results"]} == {"pass"}
    assert cli(*arguments, *IGNORES_SUBSETS).code == 1
    again = cli("scenario", "from", path, "-o", own)
    assert (again.code, "can't be written: File exists" in again.err) == (2, True)


def test_a_header_of_another_encoding_is_kept(cli, tmp_path: Path) -> None:
    faulty = ("--epp", f"cmd:{EPP} --fault header-outside-utf-8-is-an-error")
    own = tmp_path / "own.yaml"
    cli("run", "-q", *faulty, "-k", "ext-proc.odd-header-values", "-o", tmp_path / "first")
    assert cli("scenario", "from", tmp_path / "first", "-o", own).code == 0
    assert "base64: Wm/r" in own.read_text()
    for epp, failing in ((RIGHT, set()), (faulty, {"ENV-26"})):
        cli("run", "-q", *epp, "--scenarios", own, "-k", "recorded.*", "-o", tmp_path / "again")
        rows = json.loads((tmp_path / "again/report.json").read_text())["results"]
        assert {row["requirement"] for row in rows if row["verdict"] == "fail"} == failing


def test_parts_that_a_scenario_cannot_express_are_listed(cli, record, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    ran = cli("scenario", "from", record(body=0, secrets=True), "-o", own)
    assert ran.code == 0, ran.err
    for text in (own.read_text(), ran.err):
        assert "not said: the request's body, which the record does not have" in text
        assert "not said: the header authorization, whose value was redacted" in text
    assert cli("scenario", "lint", own).code == 0


def test_more_than_a_scenario_file_may_have_is_not_written(cli, record, tmp_path: Path, monkeypatch) -> None:
    body = tuple(Chunk(data=b"x" * 60_000) for _ in range(20))
    monkeypatch.setattr(sys.modules[__name__], "REQUEST", dataclasses.replace(REQUEST, body=body))
    ran = cli("scenario", "from", record(body=1 << 22), "-o", tmp_path / "own.yaml")
    assert ran.code == 2
    assert "traffic.ndjson makes 1 scenario, more than the" in ran.err
    assert "hint: choose conversations with --exchange" in ran.err
    assert not (tmp_path / "own.yaml").exists()


def test_a_report_becomes_scenarios_that_pass_on_a_right_epp(cli, faulty_report: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    assert cli("scenario", "from", faulty_report, "-o", own).code == 0
    cli("run", "-q", *RIGHT, "--scenarios", own, "-k", "recorded.*", "-o", tmp_path / "r")
    rows = json.loads((tmp_path / "r/report.json").read_text())["results"]
    assert {row["verdict"] for row in rows} == {"pass"}
    ran = cli("scenario", "from", faulty_report, "--requirement", "EPP-SUB-01", "-o", tmp_path / "some.yaml")
    assert ran.code == 0, ran.err
    some = strict_yaml.parse(tmp_path / "some.yaml", name="some.yaml").data["scenarios"]
    assert 0 < len(some) < own.read_text().count("- id:")
    assert {tuple(one["requirements"]) for one in some} == {("EPP-SUB-01",)}
    ran = cli("scenario", "from", faulty_report, "--requirement", "ENV-06", "-o", tmp_path / "no.yaml")
    assert (ran.code, "is chosen that breaks ENV-06" in ran.err) == (2, True)
    ran = cli("scenario", "from", faulty_report, "--exchange", "nope", "-o", tmp_path / "no.yaml")
    assert (ran.code, "there is no conversation 'nope'" in ran.err) == (2, True)
