"""How-to "Load your EPP through Envoy": its commands, run in their order with other ports, show what the page says."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from programs import needs_envoy, needs_h2load

from conformance.targets.ports import free_ports
from real_envoy import find_envoy

pytestmark = [pytest.mark.program, needs_envoy, needs_h2load]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "envoy-under-load.md").read_text()
PARTS = re.compile(r"^#+ (?P<heading>[^\n]*)$|^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
BUSY = (
    "until curl -s 'http://127.0.0.1:9901/stats?filter=cluster.epp.upstream_rq_active$' | grep -q ': [1-9]'; "
    "do sleep 0.1; done; "
)
"""Wait until requests are with the EPP: on a busy machine the clients may start later than the page's seconds say."""
LONGER = "h2load --log-file=$BASHPID.served -c 5 -m 100 --rps 10 -D 20"
"""The three clients of the page, with time for a machine that is busy, and a file each of what was answered."""
SERVED = "until [ $(grep -ls '[[:space:]]200[[:space:]]' *.served | wc -l) = 3 ]; do sleep 0.1; done; "
"""Wait until each of the three was served: on a busy machine it may take longer than the page's seconds."""
JUDGED = "until curl -s http://127.0.0.1:9102/metrics | grep -q '^epp_tap_judging_waiting 0'; do sleep 0.1; done; "
"""Wait until the tap has judged all: on a busy machine judging may be further behind than the tap waits for it."""
PORTS = ("8001", "8002", "9002", "9003", "9102", "9901", "10000")
SECONDS = 240


def script(folder):
    """The page as a shell script that prints each heading before what its commands print, and the files it names."""
    fresh = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    page = PAGE
    for what, instead in (
        ("h2load -c 5 -m 100 --rps 10 -D 8", LONGER),
        ("sleep 2; kill -STOP", SERVED + "sleep 2; kill -STOP"),
        ("sleep 1; kill -KILL", BUSY + "sleep 1; kill -KILL"),
        ("kill $TAP", JUDGED + "kill $TAP"),
    ):
        assert what in page
        page = page.replace(what, instead)
    page = re.sub(rf"\b(?:{'|'.join(PORTS)})\b", lambda at: str(fresh[at[0]]), page)
    lines = []
    for part in PARTS.finditer(page):
        if part["heading"]:
            lines.append(f"echo; echo {shlex.quote('# ' + part['heading'])}")
        elif part["info"] == "sh lab":
            lines.append(part["text"])
        elif part["info"] == "yaml envoy.yaml":
            envoy = part["text"]
            (folder / "envoy.yaml").write_text(envoy)
        elif part["info"] == "yaml circuit-breaker":
            beside = "      connect_timeout: 10s\n"
            (folder / "raised.yaml").write_text(envoy.replace(beside, beside + part["text"]))
            lines.append("cp raised.yaml envoy.yaml")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the page's commands print, by heading."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "bin").mkdir()
    (folder / "bin" / "envoy").symlink_to(find_envoy().path)
    path = os.pathsep.join((str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
    shell = subprocess.Popen(
        ["bash", "-c", script(folder)],
        cwd=folder,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(timeout=SECONDS)
    except BaseException:  # the page waits for all that it started, so the shell and its group are still there
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        raise
    return {part.partition("\n")[0]: part for part in re.split(r"^# ", output, flags=re.MULTILINE)}


def statuses(text):
    """The counts of each line of h2load: 2xx, 3xx, 4xx, 5xx."""
    return [tuple(map(int, re.findall(r"(\d+) [2345]xx", line))) for line in text.splitlines() if "2xx" in line]


def value(text, name):
    """What a counter of Envoy or the tap is, of several: the last."""
    return int(float(re.findall(rf"{name}(?:: |::| )([\d.]+)$", text, re.MULTILINE)[-1]))


def test_the_parts_work_together(printed):
    assert '"object":"text_completion"' in printed["Start the parts"]


def test_beyond_the_circuit_breaker_envoy_answers_and_no_stream_reaches_the_tap(printed):
    shown, _, failing_open = printed["The circuit breaker to the EPP"].partition("\nOK")[2].partition("\nOK")
    ((served, *_, refused),) = statuses(shown)
    assert served + refused == 1500
    assert refused > 0
    overflow = value(shown, "upstream_rq_active_overflow") + value(shown, "upstream_rq_pending_overflow")
    assert overflow == refused
    assert value(shown, "upstream_rq_total") == served
    assert value(shown, "epp_tap_violating_exchanges_total") == 0
    assert served <= value(shown, "epp_tap_streams_total") < 1500
    assert value(shown, "max_requests") == 1024
    assert re.search(rf"^ *{refused} 500 flags=- ext_proc_error_gRPC_error_14.*overflow", shown, re.MULTILINE)
    assert failing_open


def test_failing_open_forwards_overflowing_requests_without_a_pick(printed):
    shown = printed["The circuit breaker to the EPP"].rpartition("\nstatus codes")[2]
    assert shown.startswith(": 1500 2xx")
    overflow = sum(map(int, re.findall(r"cluster\.epp\.upstream_rq_(?:active|pending)_overflow: (\d+)", shown)))
    assert value(shown, "failure_mode_allowed") == overflow > 0


def test_with_higher_limits_the_same_load_has_no_failure(printed):
    assert statuses(printed["The recipe"]) == [(1500, 0, 0, 0)]
    assert "no overflow" in printed["The recipe"]


def test_a_crash_of_the_epp_is_handled_by_the_failure_mode(printed):
    shown = printed["An EPP that dies: failing closed and failing open"]
    closed, with_body, bodyless = statuses(shown)
    for served, *_, lost in (closed, with_body):
        assert served > 0, shown
        assert lost > 0, shown
    assert bodyless[0] > closed[0]
    assert value(shown, "failure_mode_allowed") > 0
    assert '"object":"text_completion"' in shown


def test_the_tap_reports_the_crash(printed):
    shown = printed["What the tap says"]
    streams, judged, broken = map(
        int, re.search(r"(\d+) streams relayed, (\d+) judged, (\d+) with a broken rule", shown).groups()
    )
    assert 0 < broken < judged <= streams
    assert f"{broken} × ENV-16" in shown
    assert "were open when the connection to the EPP broke" in shown
    assert "connections were cut, as the EPP could not be reached" in shown
    assert f"{broken} exchanges judged, {broken} with a broken rule" in shown
    assert shown.count("can't be reached") <= 3
