"""Role data-plane on the command line: gateways of all kinds, their reports, and mistakes in naming them."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import needs_envoy

FEW = ("-k", "gateway.follows-the-pick*", "-k", "gateway.takes-the-first-of-a-list*", "-k", "gateway.relays-refusals*")


def report(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text())


@contextlib.contextmanager
def held(*hosts: str) -> Iterator[list[str]]:
    """Free addresses that stay free of others until the block ends."""
    sockets = [socket.socket() for _ in hosts]
    try:
        for one, host in zip(sockets, hosts, strict=True):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((host, 0))
        yield ["{}:{}".format(*one.getsockname()) for one in sockets]
    finally:
        for one in sockets:
            one.close()


@pytest.fixture
def running() -> Iterator[tuple[str, str, str]]:
    """The small gateway as a process that runs already: its URL, where it expects its EPP, the endpoints it knows."""
    with held("127.0.0.1", "127.0.0.1", "127.77.1.1", "127.77.1.2", "127.77.1.3") as (listen, epp, *pods):
        endpoints = ",".join(pods)
    process = subprocess.Popen(
        [sys.executable, "-m", "reference_gateway", "--listen", listen, "--epp", epp, "--endpoints", endpoints],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == f"http://{listen}"
    yield f"http://{listen}", epp, endpoints
    process.terminate()
    process.communicate(timeout=20)


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.program
@needs_envoy
def test_real_envoy_gets_a_report_that_verifies(cli, tmp_path: Path) -> None:
    ran = cli("run", "--role", "data-plane", "--profile", "envoy-original-dst-header", *FEW, "-o", tmp_path / "r")
    assert ran.code == 1, ran.err
    assert "✗ DP-DEST-02 fail" in ran.out
    assert "Clusters that dial the one endpoint of a header (ORIGINAL_DST) know no lists." in ran.out
    assert "Endpoint Picker Protocol 1.0.0, data plane: envoy" in ran.out
    found = report(tmp_path / "r")
    assert found["implementation"]["role"] == "data-plane"
    assert {row["role"] for row in found["requirements"]} == {"data-plane"}
    assert found["claims"]["walksList"] is False
    assert found["environment"]["topology"] == {"pools": 1, "tls": ["self-signed"]}
    assert found["subject"]["name"] == "envoy"
    assert found["subject"]["flags"] == ["original-dst-header"]
    assert "gateway" in (tmp_path / "r" / "report.html").read_text()
    verified = cli("report", "verify", tmp_path / "r" / "report.json", tmp_path / "r" / "evidence.ndjson.gz")
    assert verified.code == 0, verified.out
    assert found["plan"]["command"].startswith(
        "epp-conformance run --profile envoy-original-dst-header --role data-plane "
    )


@pytest.mark.smoke
@pytest.mark.program
def test_a_gateway_that_runs_already(cli, tmp_path: Path, running: tuple[str, str, str]) -> None:
    url, epp, endpoints = running
    flags = ("--gateway", url, "--epp-listen", epp, "--endpoints", endpoints)
    ran = cli("run", *flags, *FEW, "-o", tmp_path / "r")
    assert ran.code == 4, ran.out + ran.err  # a selection gives no full verdict
    assert {row["verdict"] for row in report(tmp_path / "r")["results"]} == {"pass"}
    checked = cli("profile", "check", *flags)
    assert checked.code == 0, checked.out
    assert "request bodies FULL_DUPLEX_STREAMED" in checked.out


@pytest.mark.program
@pytest.mark.parametrize(
    ("follows", "asked"), [(None, set()), ("header", {"header"}), ("either", {"header", "metadata"})]
)
def test_only_the_claimed_source_of_the_destination_is_tested_alone(
    cli, tmp_path: Path, running: tuple[str, str, str], follows: str | None, asked: set[str]
) -> None:
    """No gateway has to read both."""
    url, epp, endpoints = running
    flags = ("--gateway", url, "--epp-listen", epp, "--endpoints", endpoints)
    said = () if follows is None else ("--follows", follows)
    scenarios = ("-k", "gateway.follows-the-header*", "-k", "gateway.follows-the-metadata*")
    ran = cli("run", *flags, *said, *scenarios, "-o", tmp_path / "r")
    results = report(tmp_path / "r")["results"]
    passed = {row["scenario"].removeprefix("gateway.follows-the-") for row in results if row["verdict"] == "pass"}
    assert passed == asked, ran.out + ran.err
    assert {row["verdict"] for row in results} <= {"pass", "notApplicable"}
    reasons = " ".join(row.get("reason") or "" for row in results)
    assert ("nothing says where the gateway reads the destination" in reasons) is (follows is None)


@pytest.mark.program
def test_http2_to_the_model_servers_is_reported_and_no_failure(cli, tmp_path: Path) -> None:
    """Proxies may keep the client's version of HTTP; engines speak HTTP/1.1."""
    path = tmp_path / "gateway.yaml"
    command = f"{sys.executable} -m reference_gateway --variant keeps-the-http-version --listen 127.0.0.1:{{port}}"
    command += " --epp {epp} --endpoints {endpoints}"
    assert cli("profile", "init", path, "--role", "data-plane", "--name", "mine", "--command", command).code == 0
    path.write_text(path.read_text().replace("tls: self-signed", "tls: plaintext"))
    ran = cli("run", "--profile", path, "-k", "gateway.asks-about-head*", "-o", tmp_path / "r")
    found = {row["id"]: row for row in report(tmp_path / "r")["results"]}
    verdicts = {name: row["verdict"] for name, row in found.items()}
    assert verdicts == {"gateway.asks-about-head[http=1]": "pass", "gateway.asks-about-head[http=2]": "inconclusive"}
    reason = found["gateway.asks-about-head[http=2]"]["reason"]
    assert "spoke HTTP/2 to a model server: those of the suite speak HTTP/1.1" in reason, ran.out + ran.err
    evidence = tmp_path / "r" / "evidence.ndjson.gz"
    verified = cli("report", "verify", tmp_path / "r" / "report.json", evidence)
    assert verified.code == 0, verified.out
    judged = cli("judge", evidence)
    assert "0 with a broken rule" in judged.out, judged.out


@pytest.mark.program
@needs_envoy
def test_certify_writes_the_folder_of_gateways(cli, tmp_path: Path) -> None:
    ran = cli(
        *("certify", "--profile", "envoy-override-host-streamed", "--mode", "override-host-streamed", "-q"),
        *("--protocol-version", "1.0.0", "--submission", tmp_path / "reports", "-o", tmp_path / "r"),
    )
    assert ran.code == 0, ran.out + ran.err
    folder = tmp_path / "reports" / "1.0.0" / "gateway" / "envoy"
    names = sorted(one.name for one in folder.iterdir())
    assert names == [
        *(f"1.40.0-override-host-streamed-gateway-{name}" for name in ("evidence.ndjson.xz", "report.yaml")),
        "README.md",
    ]
    assert "Conformance of the gateway [envoy]" in (folder / "README.md").read_text()
    verified = cli("report", "verify", folder / names[1])
    assert verified.code == 0, verified.out
    assert "✗" not in verified.out


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--role", "data-plane"), "nothing says which gateway is tested"),
        (("--gateway", "http://127.0.0.1:1"), "nothing says where the gateway expects the EPP"),
        (
            ("--gateway", "http://127.0.0.1:1", "--epp-listen", "127.0.0.1:2"),
            "nothing says which endpoints the gateway knows",
        ),
        (("--gateway", "https://gw:443", "--epp-listen", "127.0.0.1:2"), "--gateway: give http://host:port"),
        (
            ("--gateway", "http://127.0.0.1:1", "--epp-listen", "epp:2", "--endpoints", "127.0.0.1:3"),
            "'epp:2' is no address to listen on",
        ),
        (
            ("--gateway", "http://127.0.0.1:1", "--epp-listen", "127.0.0.1:2", "--endpoints", "pod"),
            "'pod' is no endpoint: there is no port",
        ),
        (("--gateway", "http://127.0.0.1:1", "--epp", "reference"), "--epp: only for an endpoint picker"),
        (("--epp-listen", "127.0.0.1:2"), "--epp-listen: only for a gateway"),
        (("--role", "data-plane", "--profile", "reference"), "reference is the profile of an endpoint picker"),
        (("--role", "epp", "--profile", "envoy-subset"), "envoy-subset is the profile of a gateway"),
        (("--profile", "envoy-subset", "-k", "destination.list"), "there is no scenario 'destination.list'"),
        (("--profile", "envoy-subset", "--property-examples", "5"), "generated conversations are for EPPs"),
    ],
)
def test_a_mistake_in_naming_a_gateway_is_told(cli, tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    ran = cli("run", *flags, "-o", tmp_path / "r")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "hint:" in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("role: gateway\n", ":1:7: role: 'gateway' is no role"),
        ("role: data-plane\nstart: {envoy: overide-host}\n", ":2:16: start.envoy: there is no such way"),
        ("role: data-plane\nclaims: {walkList: true}\n", ":2:10: claims.walkList: unknown key"),
        ("role: data-plane\nbackends: [{}, {}, {}]\n", ":2:11: backends: "),
        ("role: data-plane\nstart: {command: [a], envoy: subset}\n", "give `command` or `envoy`, not both"),
        ("role: data-plane\nurl: ftp://x\n", ":2:6: url: give http://host:port"),
        ("role: data-plane\nclaims: {retries: -1}\n", ":2:19: claims.retries: -1 is less than none"),
        ("role: data-plane\nclaims: {retryStatuses: [7]}\n", ":2:25: claims.retryStatuses: 7 is no status"),
        ("role: data-plane\nsubsetHeader: a b\n", ":2:15: subsetHeader: 'a b' is no header's name"),
        ("role: data-plane\nstart: {command: [a, '{epp2}']}\n", "nothing fills {epp2}"),
    ],
)
def test_a_mistake_in_a_profile_is_shown_at_its_place(cli, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text)
    ran = cli("run", "--profile", path, "-k", "gateway.asks-about-head", "-o", tmp_path / "r")
    assert ran.code == 2, ran.err
    assert said in ran.err


@pytest.mark.program
def test_a_profile_is_written_for_a_gateway(cli, tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    command = (
        f"{sys.executable} -m reference_gateway --listen 127.0.0.1:{{port}} --epp {{epp}} --endpoints {{endpoints}}"
    )
    ran = cli("profile", "init", path, "--role", "data-plane", "--name", "mine", "--command", command)
    assert ran.code == 0, ran.err
    path.write_text(path.read_text().replace("tls: self-signed", "tls: plaintext"))
    checked = cli("profile", "check", path)
    assert (checked.code, checked.out.count("✗")) == (0, 0), checked.out
    assert cli("profile", "init", path, "--gateway", "http://127.0.0.1:8080", "--force").code == 2
    flags = ("--epp-listen", "127.0.0.1:9002", "--endpoint", "127.0.0.1:8001")
    assert cli("profile", "init", path, "--gateway", "http://127.0.0.1:8080", *flags, "--force").code == 0
    assert 'endpoints: ["127.0.0.1:8001"]' in path.read_text()


# -- what there is -----------------------------------------------------------------------------------------------------


@pytest.mark.program
def test_the_role_is_listed_and_explained(cli) -> None:
    scenarios = json.loads(cli("list", "--role", "data-plane", "-f", "json").out)
    assert {one["role"] for one in scenarios} == {"data-plane"}
    requirements = json.loads(cli("list", "--role", "data-plane", "--requirements", "-f", "json").out)
    assert {one["id"] for one in requirements} >= {"DP-EXTP-01", "DP-SCOPE-03"}
    named = {name for one in scenarios for name in one["requirements"]}
    assert {one["id"] for one in requirements if one["tested"] != "can't be"} == named
    assert "gateway.walks-past-the-dead" in cli("explain", "DP-DEST-02").out
    assert "run --profile envoy-override-host -k" in cli("explain", "gateway.walks-past-the-dead").out


def test_profiles_of_gateways_are_listed_shown_and_described(cli) -> None:
    assert "envoy-original-dst-header" in cli("profile", "list").out
    assert "role: data-plane" in cli("profile", "show", "envoy-subset").out
    schema = json.loads(cli("profile", "schema", "--role", "data-plane").out)
    assert "backends" in schema["properties"]
