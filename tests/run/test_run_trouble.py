"""Targets in trouble: whose fault it is, what the result says, and that the run goes on and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.errors import GateFailedError, TargetUnreachableError, UsageError
from conformance.events import RunEvent, ScenarioFinished
from conformance.evidence.episode import Claims, ProcessExited
from conformance.outcome import RunOutcome, ScenarioResult
from conformance.planning.plan import Selection
from conformance.run.batches import HANGS, HUNG_TOO_OFTEN
from conformance.run.epp import gate
from conformance.run.session import RunSettings, run
from conformance.targets import launch
from conformance.targets.ports import free_ports
from conformance.targets.profile import Discovery, File, Kubernetes, Profile, Start, Timeouts
from conformance.verdict import Result, Verdict
from ext_proc.record import Author, StreamEnded

pytestmark = pytest.mark.program

HOSTILE = Path(__file__).parents[1] / "support" / "hostile" / "habits.py"
SOME = Selection(scenarios=("destination.bodyless", "destination.completion", "destination.within-pool"))
OPTIONS = "destination.bodyless[method=OPTIONS]"


def profile(habit: str, mark: Path, *, address: str = "127.0.0.1:{port}", **changes) -> Profile:
    command = ("{python}", str(HOSTILE), habit, str(mark), f"--listen={address}", "--endpoints-file={endpointsFile}")
    settings = {
        "name": habit,
        "address": address,
        "start": Start(command=(*command, "--scrape-interval=20ms", "--log-level=warning")),
        "discovery": Discovery(file=File(reread=0.15)),
        "timeouts": Timeouts(answer=0.7, stop=0.3),
    }
    return Profile(**{**settings, **changes})


class Log:
    """What the engine said."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def __call__(self, event: RunEvent) -> None:
        self.events.append(event)

    def crash(self) -> str:
        """The output that the log of the run kept of a crash."""
        finished = [event for event in self.events if isinstance(event, ScenarioFinished) and event.episode]
        exits = [e for one in finished for _, e in one.episode.of(ProcessExited) if not e.asked]
        return exits[0].output


def conduct(target: Profile, selection: Selection = SOME, log: Log | None = None, jobs: int = 1) -> RunOutcome:
    return run(RunSettings(profile=target, selection=selection, seed=1, jobs=jobs), log or Log())


def results(outcome: RunOutcome) -> dict[str, ScenarioResult]:
    return {result.id: result for result in outcome.versions[0].results}


def accused(outcome: RunOutcome) -> set[str]:
    """The scenarios in which any requirement was broken, named by the scenario or not."""
    return {name for name, result in results(outcome).items() if broken(result)}


def broken(result: ScenarioResult) -> dict[str, str]:
    """What happened instead, by requirement."""
    return {one.requirement: one.actual for one in result.findings if one.verdict is Verdict.FAIL}


@pytest.mark.parametrize(
    ("habit", "jobs", "actual"),
    [
        ("crash", 1, "exit code 42"),
        ("crash", 2, "exit code 42"),
        ("segfault", 1, "11"),
        ("hang", 1, ""),
        ("silent", 1, ""),
    ],
)
def test_only_the_scenario_that_reproduces_it_is_accused(tmp_path, habit, jobs, actual):
    log = Log()
    outcome = conduct(profile(habit, tmp_path / "mark"), log=log, jobs=jobs)
    assert accused(outcome) == {OPTIONS}
    if not actual:
        assert results(outcome)[OPTIONS].verdict is Verdict.FAIL
    else:
        assert actual in broken(results(outcome)[OPTIONS])["ENV-27"]
        assert outcome.versions[0].blockers == ("ENV-27",)
        assert {anomaly.code for anomaly in outcome.anomalies} == {"restarted"}
    if habit == "crash":
        assert "panic: OPTIONS is not a method that I know" in log.crash()


METRICS_THAT_HANG = """
section: pool
scenarios:
- id: own.hang
  title: t
  requirements: [ENV-16]
  pool: {pods: [{name: a}, {name: b}]}
  steps: [{gauges: {b: {metrics: hang}}}, {exchange: {repeat: 3}, expect: {answer: endpoint}}]
- id: own.later
  title: t
  requirements: [ENV-16]
  pool: {pods: [{name: a}, {name: b}]}
  steps: [{gauges: {b: {queue: 1}}}, {exchange: {subsets: [["{a}"], ["{b}"]], repeat: 4}, expect: {answer: endpoint}}]
"""


@pytest.mark.parametrize(("habit", "anomalies"), [("waits-for-pages", set()), ("stuck-at-a-page", {"restarted"})])
def test_a_target_blocked_by_metrics_answers_in_later_scenarios(habit, anomalies, tmp_path):
    """It is started again if it does not answer once they can be read, and then they can be."""
    scenario = tmp_path / "more.yaml"
    scenario.write_text(METRICS_THAT_HANG)
    selection = Selection(scenarios=("own.*",))
    target = profile(habit, tmp_path / "mark", timeouts=Timeouts(answer=2, stop=0.3))
    outcome = run(RunSettings(profile=target, selection=selection, seed=1, jobs=1, scenario_paths=(scenario,)), Log())
    assert {name: one.verdict for name, one in results(outcome).items()} == {
        "own.hang": Verdict.FAIL,
        "own.later": Verdict.PASS,
    }
    assert {one.code for one in outcome.anomalies} == anomalies


def test_a_death_that_nothing_reproduces_is_shown_by_one_scenario(tmp_path):
    outcome = conduct(profile("dies-once", tmp_path / "mark"))
    assert (tmp_path / "mark").exists()
    (name,) = accused(outcome)
    assert set(broken(results(outcome)[name])) == {"ENV-27"}
    assert outcome.versions[0].result is Result.NON_CONFORMANT
    (anomaly,) = [one for one in outcome.anomalies if one.code == "not-reproduced"]
    assert "not again with the same at a time" in anomaly.text


def test_a_death_under_several_streams_is_reproduced_with_as_many(tmp_path):
    selection = Selection(scenarios=("destination.bodyless", "destination.completion"))
    outcome = conduct(profile("crowded", tmp_path / "mark"), selection)
    (name,) = accused(outcome)
    assert "exit code 43" in broken(results(outcome)[name])["ENV-27"]
    assert outcome.versions[0].result is Result.NON_CONFORMANT
    assert any("once more with the same at a time" in one.text for one in outcome.anomalies)


def test_a_target_that_queues_is_not_started_again_for_that(tmp_path):
    """It holds every request of a saturated pool, in the polls and in what comes after a scenario."""
    target = profile("queues", tmp_path / "mark", claims=Claims(queues=True, sheds=True))
    selection = Selection(scenarios=("errors.*", "subset.saturated*", "destination.within-pool"))
    outcome = conduct(target, selection)
    assert {one.code for one in outcome.anomalies} <= {"unsettled"}
    assert all(one.verdict not in (Verdict.INCONCLUSIVE, Verdict.ERROR) for one in results(outcome).values())


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_does_not_wait_for_a_target_that_ignores_sigterm(tmp_path, jobs):
    """With the hour that its profile gives it to stop, this test would not end."""
    target = profile("stubborn", tmp_path / "mark", timeouts=Timeouts(stop=3600))
    finished: list[str] = []

    def handler(event: RunEvent) -> None:
        if isinstance(event, ScenarioFinished):
            finished.append(event.result.id)
            if len(finished) == 1:
                os.kill(os.getpid(), signal.SIGINT)

    outcome = run(RunSettings(profile=target, selection=Selection(smoke=True), seed=1, jobs=jobs), handler)
    assert outcome.interrupted
    left = [one for one in outcome.versions[0].results if one.verdict is Verdict.INCONCLUSIVE]
    assert {one.reason for one in left} == {"the run was ended before its turn"}


def test_repeated_silence_shortens_waits_and_is_reported(tmp_path):
    target = profile("silent", tmp_path / "mark", timeouts=Timeouts(answer=3))
    (once,) = (one for one in results(conduct(target, Selection(scenarios=(OPTIONS,)))).values())
    scenario = tmp_path / "more.yaml"
    steps = ", ".join(["{exchange: {method: OPTIONS, body: none}}"] * 5)
    scenario.write_text(
        "section: destination-endpoint\nscenarios:\n- {id: own.silence, title: t, requirements: [ENV-07], "
        f"steps: [{steps}]}}\n"
    )
    log = Log()
    settings = RunSettings(
        profile=target, selection=Selection(scenarios=("own.silence",)), seed=1, jobs=1, scenario_paths=(scenario,)
    )
    outcome = run(settings, log)
    (anomaly,) = [one for one in outcome.anomalies if one.code == "silent"]
    assert "did not come 3 times: from then on the suite waited 1.0 s for answers, and not 3 s" in anomaly.text
    assert broken(results(outcome)["own.silence"]).keys() == broken(once).keys() != set()


def test_the_restarts_of_a_freezing_target_are_limited(tmp_path):
    script = str(HOSTILE.with_name("epps.py"))
    start = Start(command=("{python}", script, "{port}", "{endpointsFile}", "stops_itself", "4"))
    discovery = Discovery(file=File(reread=0.05), scrapes=False)
    timeouts = Timeouts(answer=0.5, stop=0.3, convergence=0.3)
    target = profile("freezes", tmp_path / "mark", start=start, discovery=discovery, timeouts=timeouts)
    outcome = conduct(target, Selection(scenarios=("destination.*",)))
    restarts = [one for one in outcome.anomalies if "answered nothing any more and was started again" in one.text]
    assert len(restarts) == HANGS
    left = [one for one in results(outcome).values() if one.reason == HUNG_TOO_OFTEN]
    assert {one.verdict for one in left} == {Verdict.INCONCLUSIVE}
    assert outcome.versions[0].result is Result.NON_CONFORMANT


@pytest.mark.parametrize(
    ("habit", "address", "timeouts"),
    [
        ("flood", "127.0.0.1:{port}", Timeouts()),
        ("stubborn", "127.0.0.1:{port}", Timeouts(answer=0.7, stop=0.3)),
        ("well", "[::1]:{port}", Timeouts(answer=0.7, stop=0.3)),
    ],
    ids=["prints without end", "ignores SIGTERM", "listens on IPv6 only"],
)
def test_a_conforming_target_is_not_accused(tmp_path, habit, address, timeouts):
    assert accused(conduct(profile(habit, tmp_path / "mark", address=address, timeouts=timeouts))) == set()


def test_forked_processes_are_gone_after_the_run(tmp_path):
    mark = tmp_path / "mark"
    assert accused(conduct(profile("forks", mark))) == set()
    children = [int(line) for line in mark.read_text().split()]
    assert len(children) == 3
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_a_target_that_becomes_unready_fails(tmp_path):
    target = profile("unready", tmp_path / "mark", timeouts=Timeouts(answer=0.5, stop=0.5))
    outcome = conduct(target, Selection(scenarios=("destination.within-pool", "destination.bodyless[method=GET]")))
    assert accused(outcome) == {"destination.within-pool"}
    assert outcome.versions[0].result is Result.NON_CONFORMANT


# -- starting ----------------------------------------------------------------------------------------------------------


def test_a_late_start_is_waited_for(tmp_path):
    mark = tmp_path / "mark"
    watcher = threading.Thread(target=_release, args=(mark,))
    watcher.start()
    outcome = conduct(profile("late", mark, timeouts=Timeouts(start=60)))
    watcher.join()
    assert accused(outcome) == set()


def _release(mark: Path) -> None:
    waiting, pause = mark.with_suffix(".waiting"), threading.Event()
    while not waiting.exists():
        pause.wait(0.01)
    pause.wait(0.2)  # some refused connections
    mark.touch()


def test_the_first_answer_may_take_as_long_as_any_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "FIRST_WAIT", 0.05)  # half of what it takes
    outcome = conduct(profile("slow", tmp_path / "mark", timeouts=Timeouts()), Selection(scenarios=(OPTIONS,)))
    assert results(outcome)[OPTIONS].verdict is Verdict.PASS


STARTED_AGAIN = """
section: pool
scenarios:
- {id: own.first, title: t, requirements: [EPP-DEST-01], steps: [{restart: target}, {exchange: {}}]}
- id: own.second
  title: t
  requirements: [EPP-DEST-01]
  pool: {pods: [{name: a}]}
  steps: [{exchange: {}, expect: {answer: endpoint}}]
"""


@pytest.mark.parametrize(("habit", "later"), [("late-once", Verdict.PASS), ("late-again", Verdict.INCONCLUSIVE)])
def test_a_start_within_a_scenario_that_takes_too_long_is_tried_once_more(habit, later, tmp_path):
    """And not for each scenario that is left, if that is of no use either; none of them is accused."""
    scenario, mark = tmp_path / "more.yaml", tmp_path / "mark"
    scenario.write_text(STARTED_AGAIN)
    target = profile(habit, mark, timeouts=Timeouts(start=3, stop=0.3))
    selection = Selection(scenarios=("own.*",))
    outcome = run(RunSettings(profile=target, selection=selection, seed=1, jobs=1, scenario_paths=(scenario,)), Log())
    assert {name: one.verdict for name, one in results(outcome).items()} == {
        "own.first": Verdict.INCONCLUSIVE,
        "own.second": later,
    }
    assert len(mark.read_text().splitlines()) == 3
    assert {anomaly.code for anomaly in outcome.anomalies} == {"restarted"}


def test_another_port_is_tried_when_somebody_took_the_one_we_chose(tmp_path):
    mark = tmp_path / "mark"
    assert accused(conduct(profile("port-taken", mark))) == set()
    ports = mark.read_text().split()
    assert len(set(ports)) == len(ports) == 3


def test_another_port_is_tried_when_somebody_listens_there(tmp_path, monkeypatch):
    taken = socket.create_server(("127.0.0.1", 0))  # and never says a word
    given = [[taken.getsockname()[1], 1, 2]]
    monkeypatch.setattr(launch, "free_ports", lambda count: given.pop() if given else free_ports(count))
    with taken:
        assert accused(conduct(profile("well", tmp_path / "mark"))) == set()
    assert not given


def test_a_port_of_the_user_is_not_exchanged(tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(TargetUnreachableError, match="already in use"):
        conduct(profile("port-taken", mark, address="127.0.0.1:19"))
    assert len(mark.read_text().split()) == 1


@pytest.mark.parametrize(
    ("habit", "command", "error", "message", "hint"),
    [
        ("late", (), TargetUnreachableError, r"connection refused after 0\.5 s", "timeouts.start"),
        ("never-binds", (), TargetUnreachableError, "exited with 1 before .*address already in use", ""),
        (
            "well",
            ("sh", "-c", "echo no config; exit 0"),
            TargetUnreachableError,
            "exited with 0 before .*no config",
            "",
        ),
        ("well", ("{tmp}/epp",), UsageError, "there is no file", ""),
        ("well", ("epp", "--port={prot}"), UsageError, "there is no placeholder {prot}", "'port'"),
        ("raises", (), GateFailedError, r"ended with gRPC status (2|13).*no table of models", "its handler failed"),
    ],
)
def test_a_start_that_fails_is_explained(tmp_path, habit, command, error, message, hint):
    changes = {"timeouts": Timeouts(start=0.5 if habit == "late" else 4, answer=1)}
    if command:
        changes["start"] = Start(command=tuple(word.replace("{tmp}", str(tmp_path)) for word in command))
    with pytest.raises(error) as caught:
        conduct(profile(habit, tmp_path / "mark", **changes))
    assert re.search(message, caught.value.message, re.DOTALL), caught.value.message
    assert hint in caught.value.hint


def test_the_output_is_shown_if_no_endpoint_is_ever_picked(tmp_path):
    target = profile("well", tmp_path / "mark", timeouts=Timeouts(start=4, answer=1))
    elsewhere = Start(command=(*(target.start.command or ())[:-3], "--endpoints-file=/no/such/file"))
    with pytest.raises(GateFailedError, match=r"got no endpoint, tried for [0-9.]+ s(.|\n)*can't be read"):
        conduct(target.model_copy(update={"start": elsewhere}))


@pytest.mark.parametrize(
    ("status", "message", "hinted"),
    [
        (13, "Error serializing response", "could not write the answer"),  # grpc-js
        (13, "Failed to serialize response!", "could not write the answer"),  # grpcio
        (3, "unknown message", "refuses the messages as such"),
    ],
)
def test_the_hint_names_a_wrong_message_schema(tmp_path, status, message, hinted):
    ended = StreamEnded(exchange=None, stream="1", author=Author.EPP, how="status", status=status, message=message)
    last = SimpleNamespace(stream=ended)
    assert hinted in gate.hint(profile("well", tmp_path / "mark"), last)


def test_unsolicited_compression_is_accused(tmp_path):
    """As grpcio does whatever the data plane accepts; Envoy accepts nothing compressed."""
    outcome = conduct(profile("compresses", tmp_path / "mark"))
    (finding, *_) = [one for result in results(outcome).values() for one in result.findings]
    assert finding.requirement == "ENV-01"
    assert "no compression was agreed" in finding.actual
    assert "compression" in finding.hint
    assert outcome.versions[0].result is Result.NON_CONFORMANT


# -- the requests to the Kubernetes API are quoted ---------------------------------------------------------------------

ASKS = """
import os, re, sys, urllib.request
server = re.search("server: (.*)", open(os.environ["KUBECONFIG"]).read())[1].strip(' "')
for path in ("/api/v1/namespaces/default/pods?limit=500", "/apis/example.com/v1/wishes"):
    try:
        urllib.request.urlopen(server + path).read()
    except OSError:
        pass
"""


@pytest.mark.parametrize("then", ["sys.exit('no such pool')", "import time; time.sleep(3600)"], ids=["exits", "waits"])
def test_its_requests_to_the_kubernetes_api_are_quoted(then, tmp_path):
    start = Start(command=("{python}", "-c", ASKS + then), env={"KUBECONFIG": "{kubeconfig}"})
    target = Profile(
        name="asks", start=start, discovery=Discovery(kubernetes=Kubernetes()), timeouts=Timeouts(start=1.5, stop=0.2)
    )
    with pytest.raises(TargetUnreachableError) as caught:
        conduct(target)
    asked = caught.value.message.partition("its last requests to the Kubernetes API:\n")[2].splitlines()
    assert asked[-2:] == [
        "  GET /api/v1/namespaces/default/pods?limit=500 -> 200",
        asked[-1],
    ]
    assert asked[-1].startswith("  GET /apis/example.com/v1/wishes -> 404")


def test_no_request_to_the_kubernetes_api_is_said_too(tmp_path):
    target = Profile(
        name="mute", start=Start(command=("sh", "-c", "exit 1")), discovery=Discovery(kubernetes=Kubernetes())
    )
    with pytest.raises(TargetUnreachableError, match=r"Kubernetes API:\n  \(none\)"):
        conduct(target)
