"""Role model-server on the command line: engines of all generations, their reports, and what is no model server."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from serving import BadTarget, model_server

from conformance.cli import call
from conformance.report.document.canonical import digest
from conformance.report.document.model import read_report
from ext_proc.http2.tls import self_signed
from fake_modelserver import GENERATIONS, Engine, Fault, FaultType, Gauges, Served

SILENT = [(Engine.TRTLLM_SERVE, "1.2.0"), (Engine.TRITON, "2024")]
"""Generations without the gauges that the protocol asks for."""

FULL = [(engine, name) for engine, known in GENERATIONS.items() for name in known if (engine, name) not in SILENT]

KEY = "sk-secret-of-a-tenant"


def target(pod: Any, engine: str = "vllm") -> tuple[str, ...]:
    page = ("--metrics-url", f"http://{pod.metrics_endpoint}/metrics") if engine == Engine.TRITON else ()
    return "--server", f"http://{pod.endpoint}", "--engine", engine, *page


def spec(engine: str, name: str) -> dict[str, Any]:
    port = {"metrics_port": 0} if engine == Engine.TRITON else {}
    return {"engine": engine, "generation": name, "page": "real", **port}


def report(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text())


def verdicts(folder: Path) -> dict[str, str]:
    return {row["id"]: row["verdict"] for row in report(folder)["requirements"]}


# -- engines -----------------------------------------------------------------------------------------------------------


@pytest.mark.program
@pytest.mark.parametrize(("engine", "name"), FULL)
def test_an_engine_of_the_field_is_conformant(cli, tmp_path: Path, engine: str, name: str) -> None:
    with model_server(**spec(engine, name)) as pod:
        ran = cli("run", *target(pod, engine), "--protocol-version", "next", "-o", tmp_path / "r")
    assert ran.code == 0, ran.out + ran.err
    found = report(tmp_path / "r")
    assert (found["implementation"]["role"], found["result"]) == ("model-server", "conformant")
    seen = verdicts(tmp_path / "r")
    assert {seen[name] for name in ("MS-API-01", "MS-API-02", "MS-MET-02", "MS-MET-04")} == {"pass"}
    assert seen["MS-MET-03"] == ("warn" if name == "0.8.5" else "pass")
    assert {seen[name] for name in seen if name.startswith("MS-LORA")} == {"notApplicable"}
    verified = cli("report", "verify", tmp_path / "r" / "report.json")
    assert (verified.code, "✗" in verified.out) == (0, False), verified.out


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "name"), SILENT)
def test_an_engine_without_the_gauges_is_not(cli, tmp_path: Path, engine: str, name: str) -> None:
    with model_server(**spec(engine, name)) as pod:
        ran = cli("run", *target(pod, engine), "-k", "metrics.kv-cache", "-o", tmp_path / "r")
    assert ran.code == 1, ran.out + ran.err
    assert verdicts(tmp_path / "r")["MS-MET-03"] == "fail"


def test_adapters_that_are_named_are_looked_for(cli, tmp_path: Path) -> None:
    profile = tmp_path / "server.yaml"
    with model_server(adapters=("tuned-a", "tuned-b")) as pod:
        profile.write_text(f"role: model-server\nurl: http://{pod.endpoint}\nadapters: [tuned-a, tuned-b]\n")
        ran = cli("run", "--profile", profile, "-k", "lora.*", "--protocol-version", "next", "-o", tmp_path / "r")
        checked = cli("profile", "check", profile)
    assert ran.code == 4, ran.out + ran.err  # a selection gives no full verdict
    seen = verdicts(tmp_path / "r")
    assert {name: seen[name] for name in seen if name.startswith("MS-LORA")} == {
        "MS-LORA-01": "pass",
        "MS-LORA-02": "pass",
        "MS-LORA-03": "pass",
        "MS-LORA-04": "pass",
        "MS-LORA-05": "warn",  # current vLLM writes all adapters in flight into both labels
    }
    assert checked.code == 0, checked.out
    for part in ("✓ model server serves ", "✓ queued       vllm:num_requests_waiting", "✓ block size   vllm:"):
        assert part in checked.out


@pytest.mark.slow
def test_names_of_the_profile_replace_those_of_the_engine(cli, tmp_path: Path) -> None:
    profile = tmp_path / "server.yaml"
    with model_server(engine=Engine.SGLANG) as pod:
        profile.write_text(
            f"role: model-server\nurl: http://{pod.endpoint}\nengine: other\nmetrics:\n  names:\n"
            "    queued: [sglang:num_queue_reqs]\n    running: [sglang:num_running_reqs]\n"
            "    kvCache: [sglang:token_usage]\n"
        )
        ran = cli("run", "--profile", profile, "-k", "metrics.*", "--protocol-version", "next", "-o", tmp_path / "r")
    assert ran.code == 4, ran.out + ran.err
    assert {verdicts(tmp_path / "r")[f"MS-MET-0{number}"] for number in (1, 2, 3, 4)} == {"pass"}


def test_a_server_that_others_ask_is_not_judged_by_its_gauges(cli, tmp_path: Path) -> None:
    profile = tmp_path / "server.yaml"
    with model_server(serving=None, gauges=Gauges(running=1)) as pod:
        profile.write_text(f"role: model-server\nurl: http://{pod.endpoint}\ntimeouts: {{rest: 1}}\n")
        ran = cli("run", "--profile", profile, "-k", "metrics.queue", "-o", tmp_path / "r")
    assert ran.code == 4, ran.out + ran.err
    (row,) = report(tmp_path / "r")["results"]
    assert (row["verdict"], "others ask it" in row["reason"]) == ("inconclusive", True)
    assert cli("report", "verify", tmp_path / "r" / "report.json").code == 0


# -- what comes of a run -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_neither_keys_nor_prompts_are_in_what_is_written(cli, tmp_path: Path) -> None:
    profile = tmp_path / "server.yaml"
    served: list[Served] = []
    with model_server(served=served, faults=[Fault(type=FaultType.COMMENTS)]) as pod:
        profile.write_text(
            f"role: model-server\nurl: http://{pod.endpoint}\n"
            f"requests: {{secretHeaders: {{authorization: Bearer {KEY}}}, body: {{user: {KEY}}}}}\n"
        )
        ran = cli("run", "--profile", profile, "--smoke", "-o", tmp_path / "r")
    asked = [json.loads(one.body) for one in served if one.body[-1:] == b"}"]
    prompts = {one.get("prompt") or one["messages"][0]["content"] for one in asked}
    assert len(prompts) > 10
    assert all((b"authorization", f"Bearer {KEY}".encode()) in one.headers for one in served)
    written = [ran.out.encode(), ran.err.encode()]
    files = {path: path.read_bytes() for path in (tmp_path / "r").iterdir()}
    written += [gzip.decompress(text) if path.suffix == ".gz" else text for path, text in files.items()]
    for text in written:
        assert KEY.encode() not in text
        assert not any(prompt.encode() in text for prompt in prompts)


CERTIFIED = """
role: model-server
name: small
implementation:
  {{organization: Example, project: small, url: "https://example.com", version: v1, contact: [a@b.example]}}
start:
  command: ["{{python}}", -m, fake_modelserver, serve, "--listen=127.0.0.1:{{port}}"{more}]
requests: {{model: small-model}}
"""


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of submissions with the one report of a server."""
    folder = tmp_path_factory.mktemp("certified")
    (folder / "server.yaml").write_text(CERTIFIED.format(more=""))
    flags = ("--protocol-version", "1.0.0", "--submission", folder / "reports", "-o", folder / "r", "-q")
    assert call(["certify", "--profile", str(folder / "server.yaml"), *map(str, flags)]) == 0
    return folder / "reports"


@pytest.mark.smoke
@pytest.mark.program
def test_certify_writes_the_folder_and_matrix_shows_it(cli, certified: Path, tmp_path: Path) -> None:
    folder = certified / "1.0.0" / "model-server" / "small"
    assert "Conformance of the model server [small]" in (folder / "README.md").read_text()
    written = next(folder.glob("*report.yaml"))
    assert cli("report", "verify", written).code == 0
    made = cli("report", "matrix", certified, "--markdown", tmp_path / "m.md", "--html", tmp_path / "m.html")
    assert made.code == 0, made.err
    assert "small v1" in (tmp_path / "m.md").read_text()
    assert "MS-MET-02" in (tmp_path / "m.md").read_text()


@pytest.mark.program
@pytest.mark.parametrize("change", ["nothing", "result", "result, and sealed", "no evidence"])
def test_only_what_follows_from_its_evidence_is_certified(cli, certified: Path, tmp_path: Path, change: str) -> None:
    path = next(certified.rglob("*report.yaml"))
    evidence = read_report(path).evidence_beside(path)
    document = yaml.load(path.read_text(), yaml.CSafeLoader)
    if change.startswith("result"):
        document["result"] = document["versions"][0]["result"] = "non-conformant"
    if change.endswith("sealed"):
        document["digest"] = digest(document)
    (tmp_path / "report.json").write_text(json.dumps(document))
    if change != "no evidence":
        shutil.copy(evidence, tmp_path)
    ran = cli("certify", "--from", tmp_path, "--submission", tmp_path / "reports")
    assert (ran.code, (tmp_path / "reports").exists()) == ((0, True) if change == "nothing" else (2, False)), ran.err


DYING = """
import asyncio, os
from fake_modelserver import Fleet, PodSpec

def dies(request):
    if request.path.endswith("/chat/completions") and request.json.get("stream"):
        os._exit(7)

async def serve():
    async with Fleet(script=dies) as fleet:
        await fleet.add(PodSpec(name="s", address="127.0.0.1", ports=({port},)))
        await asyncio.sleep(600)

asyncio.run(serve())
"""


@pytest.mark.smoke
@pytest.mark.program
def test_a_server_that_ends_by_itself_fails_and_the_run_goes_on(cli, tmp_path: Path) -> None:
    program = tmp_path / "dying.py"
    program.write_text(DYING.replace("{port}", "int(__import__('sys').argv[1])"))
    server = f"cmd:{sys.executable} {program} {{port}}"
    ran = cli("run", "--server", server, "-k", "server.chats*", "-o", tmp_path / "r")
    assert ran.code == 1, ran.out + ran.err
    rows = report(tmp_path / "r")["results"]
    assert {row["verdict"] for row in rows if row["scenario"] == "server.chats-with-events"} == {"fail"}
    assert {row["verdict"] for row in rows if row["scenario"] == "server.chats-with-an-object"} == {"pass"}
    assert "ended by itself, with code 7" in ran.out


# -- what is no model server -------------------------------------------------------------------------------------------


def http(head: str, body: str = "") -> bytes:
    return f"HTTP/1.1 {head}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "endless", "said"),
    [
        (http("200 OK\r\ncontent-type: text/html", "<html>hello</html>"), b"", "with a page of HTML"),
        (http("302 Found\r\nlocation: https://login.example/?token=" + KEY), b"", "is redirected to https://login."),
        (http("401 Unauthorized\r\ncontent-type: application/json", "{}"), b"", "is answered 401: the server wants a"),
        (http("200 OK\r\ncontent-type: text/plain", "hello"), b"", "serves no plain request"),
        (http("404 Not Found"), b"", "serves no plain request"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"", "can't be reached: the connection ended, or no HTTP came"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n", b"x 1\n", "does not end"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x 1\n" * 1_000_000, "does not end: more than 16 MB"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", b"data: {}\n\n", "does not end"),
    ],
    ids=["html", "redirect", "key", "text", "404", "ssh", "endless page", "endless and large", "endless stream"],
)
def test_a_server_without_the_api_is_explained_in_a_sentence(cli, tmp_path: Path, answer, endless, said: str) -> None:
    with BadTarget(answer, endless) as bad:
        ran = cli("run", "--server", f"http://{bad.address}", "-o", tmp_path / "r")
    assert ran.code == 4, ran.out + ran.err
    assert said in ran.err
    assert "hint:" in ran.err
    assert KEY not in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.slow
def test_a_silent_server_is_reported(cli, tmp_path: Path) -> None:
    with BadTarget(None) as bad:
        ran = cli("run", "--server", f"http://{bad.address}", "-o", tmp_path / "r")
    assert (ran.code, "can't be reached: no answer within 10 s" in ran.err) == (4, True), ran.err


def test_an_endless_page_of_metrics_is_told(cli, tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"
    with model_server() as pod, BadTarget(answer, b"x 1\n" * 1_000_000) as bad:
        flags = ("--server", f"http://{pod.endpoint}", "--metrics-url", f"http://{bad.address}/metrics")
        ran = cli("run", *flags, "-o", tmp_path / "r")
    assert (ran.code, "/metrics does not end" in ran.err) == (4, True), ran.err


def test_keys_do_not_follow_a_redirect_to_another_host(cli, tmp_path: Path) -> None:
    seen: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(str(self.headers))
            body = b"# TYPE up gauge\nup 1\n"
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    profile = tmp_path / "server.yaml"
    with model_server(address="127.0.0.1") as pod, ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as other:
        threading.Thread(target=other.serve_forever).start()
        with BadTarget(http(f"302 Found\r\nlocation: http://localhost:{other.server_port}/metrics")) as bad:
            profile.write_text(
                f"role: model-server\nurl: http://{pod.endpoint}\nmetrics: {{url: 'http://{bad.address}/metrics'}}\n"
                f"requests: {{secretHeaders: {{authorization: Bearer {KEY}, x-api-key: {KEY}}}}}\n"
            )
            cli("run", "--profile", profile, "-k", "metrics.page", "-o", tmp_path / "r", "-q")
        other.shutdown()
    assert seen
    assert not any(KEY in headers for headers in seen)


def test_tls_where_there_is_none_and_the_other_way_round(cli, tmp_path: Path) -> None:
    context = self_signed(tmp_path, names=("127.0.0.1",)).context()
    context.set_alpn_protocols(["http/1.1"])
    with BadTarget(http("200 OK"), context=context) as bad:
        plain = cli("run", "--server", f"http://{bad.address}", "-o", tmp_path / "r")
        stranger = cli("run", "--server", f"https://{bad.address}", "-o", tmp_path / "r")
    assert (plain.code, stranger.code) == (4, 4)
    assert "hint:" in plain.err
    assert "its certificate is signed by none that is trusted here" in stranger.err
    assert "--ca FILE" in stranger.err
    with model_server() as pod:
        secure = cli("run", "--server", f"https://{pod.endpoint}", "-o", tmp_path / "r")
    assert (secure.code, "it does not speak TLS" in secure.err) == (4, True), secure.err


def test_a_certificate_that_has_expired_is_to_be_renewed(cli, tmp_path: Path) -> None:
    expired = self_signed(tmp_path, names=("127.0.0.1",), valid=-0.5)
    context = expired.context()
    context.set_alpn_protocols(["http/1.1"])
    with BadTarget(http("200 OK"), context=context) as bad:
        ran = cli("run", "--server", f"https://{bad.address}", "--ca", expired.certificate, "-o", tmp_path / "r")
    assert ran.code == 4
    assert "its certificate was rejected: certificate has expired" in ran.err
    assert "renew the certificate" in ran.err


def test_a_server_that_is_not_there_is_told(cli, tmp_path: Path) -> None:
    ran = cli("run", "--server", "http://127.0.0.1:9", "-o", tmp_path / "r")
    assert (ran.code, "can't be reached: no connection" in ran.err) == (4, True), ran.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--role", "model-server"), "nothing says which model server is tested"),
        (("--server", "127.0.0.1:8000"), "--server: give http://host:port"),
        (("--server", "http://127.0.0.1:8000/v1"), "--server: give it without /v1"),
        (("--server", "http://127.0.0.1:8000", "--engine", "vlm"), "--engine"),
        (("--server", "http://127.0.0.1:8000", "--engine", "other"), "engine `other` has no names"),
        (("--server", "http://127.0.0.1:8000", "--metrics-url", "127.0.0.1:8002"), "--metrics-url: give http://"),
        (("--server", "http://127.0.0.1:8000", "--epp", "reference"), "--epp: only for an endpoint picker"),
        (("--server", "http://127.0.0.1:8000", "-k", "metrics.que"), "there is no scenario 'metrics.que'"),
        (("--engine", "vllm"), "--engine: only for a model server"),
        (("--server", "image:"), "image: needs the name of an image"),
    ],
)
def test_a_mistake_in_naming_a_server_is_told(cli, tmp_path: Path, flags: tuple[str, ...], said: str) -> None:
    ran = cli("run", *flags, "-o", tmp_path / "r")
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert said in ran.err
    assert "hint:" in ran.err


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("url: http://127.0.0.1:1\nengin: vllm\n", "engin"),
        ("url: http://127.0.0.1:1\nmetrics: {names: {queued: ['{a}']}}\n", "is no metric"),
        ("url: http://127.0.0.1:1\nrequests: {body: {prompt: hello}}\n", "prompt"),
        ("url: http://127.0.0.1:1\nlimits: {concurrency: 0}\n", "concurrency"),
    ],
)
def test_a_mistake_in_a_profile_has_its_place(cli, tmp_path: Path, yaml: str, said: str) -> None:
    profile = tmp_path / "server.yaml"
    profile.write_text(f"role: model-server\n{yaml}")
    ran = cli("run", "--profile", profile, "-o", tmp_path / "r")
    assert (ran.code, ran.out) == (2, ""), ran.err
    assert f"{profile}:3:" in ran.err
    assert said in ran.err


@pytest.mark.program
@pytest.mark.parametrize("variant", ["short-prompts", "short-prompts-in-the-stream"])
def test_prompts_that_are_refused_for_their_length_are_halved(cli, tmp_path: Path, variant: str) -> None:
    (tmp_path / "p.yaml").write_text(CERTIFIED.format(more=f", --variant={variant}"))
    ran = cli("run", "--profile", tmp_path / "p.yaml", "-k", "metrics.kv-cache", "-o", tmp_path / "r")
    assert verdicts(tmp_path / "r")["MS-MET-03"] == "pass", ran.out + ran.err
    verified = cli("report", "verify", tmp_path / "r" / "report.json")
    assert (verified.code, "✗" in verified.out) == (0, False), verified.out
