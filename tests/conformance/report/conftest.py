"""A run made by hand: three pods, scenarios with real messages, and a small judge that is as pure as the suite's."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from forging import real_reports

from conformance.evidence.episode import (
    Context,
    Episode,
    Expectation,
    PodFact,
    PoolState,
    ProcessExited,
    ProcessStarted,
)
from conformance.evidence.redaction import Redactor
from conformance.evidence.store import EvidenceWriter
from conformance.outcome import (
    Anomaly,
    RunOutcome,
    ScenarioResult,
    scenario_verdict,
    version_outcome,
)
from conformance.planning.plan import Selection
from conformance.report.document.basis import basis_of
from conformance.report.document.build import build
from conformance.report.document.model import Report, write_report
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import Instance
from conformance.strict_yaml import load
from conformance.targets.profile import Profile
from conformance.verdict import Finding, Verdict
from ext_proc.headers import header_map, to_struct
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpBody,
    HttpHeaders,
    HttpStatus,
    ImmediateResponse,
    Metadata,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
)
from ext_proc.record import (
    Author,
    ClientResponse,
    Event,
    ExchangeOpened,
    HalfClosed,
    Message,
    Recorder,
    StreamEnded,
    StreamOpened,
    UpstreamRequest,
    UpstreamResponse,
)
from real_envoy import EnvoyError

PICK = "x-gateway-destination-endpoint"
SUBSET = "x-gateway-destination-endpoint-subset"
PODS = {name: f"127.1.0.{number}:8000" for number, name in enumerate("abc", start=1)}

PROFILE = """
name: sample
implementation:
  organization: Example Corp
  project: Sample Picker
  url: https://example.com/sample-picker
  version: v0.7.1
  contact: [conformance@example.com]
start:
  command: [sample-picker]
  args: ["--grpc-port", "{port}", "--endpoints", "{endpointsFile}"]
  env: {LOG_LEVEL: debug}
discovery: {file: {}}
"""


def ticking() -> Callable[[], int]:
    """A clock that moves half a millisecond each time it is read."""
    now = 0

    def clock() -> int:
        nonlocal now
        now += 500_000
        return now

    return clock


def request_headers(subset: tuple[str, ...] | None, headers: dict[str, str] | None = None) -> bytes:
    pairs = [(b":method", b"POST"), (b":path", b"/v1/completions"), (b"content-type", b"application/json")]
    pairs += [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return with_subset(ProcessingRequest(request_headers=HttpHeaders(headers=header_map(pairs))), subset)


def with_subset(message: ProcessingRequest, subset: tuple[str, ...] | None) -> bytes:
    if subset is not None:
        struct = to_struct({SUBSET: list(subset)})
        message.metadata_context.CopyFrom(Metadata(filter_metadata={"envoy.lb.subset_hint": struct}))
    return message.SerializeToString(deterministic=True)


def picks(endpoint: str, metadata: str | None = None) -> bytes:
    option = HeaderValueOption(header=HeaderValue(key=PICK, raw_value=endpoint.encode()), append_action=2)
    common = CommonResponse(header_mutation=HeaderMutation(set_headers=[option]), clear_route_cache=True)
    message = ProcessingResponse(request_headers=HeadersResponse(response=common))
    message.dynamic_metadata.CopyFrom(to_struct({"envoy.lb": {PICK: metadata or endpoint}}))
    return message.SerializeToString(deterministic=True)


def refuses(status: int) -> bytes:
    immediate = ImmediateResponse(status=HttpStatus(code=status), body=b"no endpoint", details="no_endpoint")
    return ProcessingResponse(immediate_response=immediate).SerializeToString()


def echo(body: bytes, end: bool) -> bytes:
    streamed = StreamedBodyResponse(body=body, end_of_stream=end)
    common = CommonResponse(body_mutation=BodyMutation(streamed_response=streamed))
    return ProcessingResponse(request_body=BodyResponse(response=common)).SerializeToString()


def exchange(
    name: str,
    pick: str,
    *,
    subset: tuple[str, ...] | None = None,
    answer: bytes | None = None,
    headers: dict[str, str] | None = None,
    chunks: int = 3,
) -> list[Event]:
    """One exchange: the request in `chunks` pieces, the pick, the model server's answer."""
    stream = f"{name}/1"
    body = json.dumps({"model": "llama-3", "prompt": "why is the sky <b>blue</b> & wide?"}).encode()
    parts = [body[i * len(body) // chunks : (i + 1) * len(body) // chunks] for i in range(chunks)]

    def said(author: Author, raw: bytes) -> Message:
        return Message(exchange=name, stream=stream, author=author, raw=raw)

    pairs = tuple((key.encode(), value.encode()) for key, value in (headers or {}).items())
    events: list[Event] = [
        ExchangeOpened(
            exchange=name,
            method="POST",
            path="/v1/completions",
            headers=((b"content-type", b"application/json"), *pairs),
            request_body_mode="FULL_DUPLEX_STREAMED",
            response_body_mode="FULL_DUPLEX_STREAMED",
            ending="drain",
        ),
        StreamOpened(exchange=name, stream=stream, connection=1, headers=((b":path", b"/Process"), *pairs)),
        said(Author.DATA_PLANE, request_headers(subset, headers)),
        *(
            said(
                Author.DATA_PLANE,
                with_subset(
                    ProcessingRequest(request_body=HttpBody(body=part, end_of_stream=part is parts[-1])), subset
                ),
            )
            for part in parts
        ),
        said(Author.EPP, answer or picks(pick)),
    ]
    if answer is None:
        events += [said(Author.EPP, echo(part, part is parts[-1])) for part in parts]
        events += [
            UpstreamRequest(exchange=name, attempt=1, endpoint=pick, headers=pairs, body=body),
            UpstreamResponse(exchange=name, attempt=1, endpoint=pick, outcome="response", status=200, body=b"{}"),
        ]
    events += [
        ClientResponse(exchange=name, status=200 if answer is None else 503, body=b"{}"),
        HalfClosed(exchange=name, stream=stream, author=Author.DATA_PLANE),
        StreamEnded(exchange=name, stream=stream, author=Author.EPP, how="status", status=0),
    ]
    return events


def pool() -> PoolState:
    return PoolState(
        phase="effective", pods=tuple(PodFact(name=name, endpoints=(address,)) for name, address in PODS.items())
    )


def judge(episode: Episode, context: Context, catalogue: Catalogue) -> tuple[Finding, ...]:
    """Two rules of the protocol and two of the carrier, enough to make every verdict."""
    found: list[Finding] = []

    def rule(requirement: str, holds: bool, expected: tuple[str, ...] = (), actual: str = "", **place: Any) -> None:
        verdict = Verdict.PASS if holds else Verdict.FAIL
        told = {} if holds and requirement == "EPP-DEST-05" else {"expected": expected, "actual": actual, **place}
        found.append(Finding(requirement=requirement, verdict=verdict, **told))

    for name, entries in episode.exchanges.items():
        first = next((e for e in entries if isinstance(e.event, Message) and e.event.author is Author.EPP), None)
        if first is None or not isinstance(first.event, Message):
            continue
        response = ProcessingResponse.FromString(first.event.raw)
        place: dict[str, Any] = {"exchange": name, "seq": first.seq}
        options = response.request_headers.response.header_mutation.set_headers
        endpoint = options[0].header.raw_value.decode() if options else ""
        found.append(Finding(requirement="EPP-DEST-01", verdict=Verdict.PASS if endpoint else Verdict.NOT_APPLICABLE))
        metadata = response.dynamic_metadata.fields["envoy.lb"].struct_value.fields[PICK].string_value
        hint = "Envoy follows the metadata, others the header."
        same = ("header and metadata name the same endpoint",)
        rule("EPP-DEST-05", endpoint == metadata, same, f"header {endpoint}, metadata {metadata}", hint=hint, **place)
        expectation = context.expectations.get(name) or Expectation()
        if expectation.within is not None:
            expected = (f"one of {', '.join(expectation.within)}", "503 as an ImmediateResponse")
            inside = endpoint in expectation.within
            rule("EPP-SUB-01", inside, expected, endpoint or "an ImmediateResponse", **place)
        if expectation.status and first.event.raw:
            status = response.immediate_response.status.code
            expected = tuple(f"ImmediateResponse {status}" for status in expectation.status)
            actual = f"ImmediateResponse {status}" if status else f"endpoint {endpoint}"
            rule("EPP-SUB-02", status in expectation.status, expected, actual, **place)
    for entry, exited in episode.of(ProcessExited):
        if not exited.asked:
            rule("ENV-22", False, ("the process lives",), f"exit code {exited.code}", seq=entry.seq)
    found.append(Finding(requirement="ENV-01", verdict=Verdict.PASS))
    return tuple(found)


@dataclass
class Made:
    """A run in the making. `scenario` adds one; `report` finishes it."""

    folder: Path
    catalogue: Catalogue
    profile: Profile
    version: str = "1.0.0"
    results: list[ScenarioResult] = field(default_factory=list)
    judge: Callable[[Episode, Context, Catalogue], tuple[Finding, ...]] = judge
    redactor: Redactor = field(default_factory=Redactor)
    recorder: Recorder = field(default_factory=lambda: Recorder(ticking()))

    def __post_init__(self) -> None:
        self.evidence = EvidenceWriter(self.folder / "evidence.ndjson.gz")

    def episode(self, name: str, events: Iterable[Event]) -> Episode:
        return Episode(id=name, entries=tuple(self.recorder.emit(event) for event in (pool(), *events)))

    def scenario(
        self,
        name: str,
        requirements: tuple[str, ...],
        events: Iterable[Event],
        expectations: dict[str, Expectation] | None = None,
        **fields: Any,
    ) -> Episode:
        context = Context(
            version=self.version,
            scenario=name,
            requirements=requirements,
            provisional=fields.get("provisional", False),
            claims=self.profile.claims,
            expectations=expectations or {},
        )
        episode = self.redactor.episode(self.episode(f"{name}@{self.version}", events))
        self.evidence.add(name, episode, context)
        findings = self.judge(episode, context, self.catalogue)
        self.results.append(
            ScenarioResult(
                version=self.version,
                id=name,
                scenario=name,
                title=fields.pop("title", f"Scenario {name}"),
                section=name.partition(".")[0],
                requirements=requirements,
                mode="full-duplex",
                verdict=scenario_verdict(findings, requirements),
                findings=findings,
                duration=0.125,
                source=f"scenarios/{name.partition('.')[0]}.yaml:7",
                **fields,
            )
        )
        return episode

    def skipped(
        self, name: str, requirements: tuple[str, ...], reason: str, verdict: Verdict = Verdict.SKIPPED
    ) -> None:
        self.results.append(
            ScenarioResult(
                version=self.version,
                id=name,
                scenario=name,
                title=f"Scenario {name}",
                section=name.partition(".")[0],
                requirements=requirements,
                mode="full-duplex",
                verdict=verdict,
                reason=reason,
            )
        )

    def finish(self, **fields: Any) -> RunOutcome:
        self.evidence.close()
        outcome = version_outcome(self.catalogue, self.version, self.results, complete=fields.pop("complete", True))
        return RunOutcome(
            versions=(outcome,),
            seed=42,
            started_at="2025-11-20T19:00:00+00:00",
            finished_at="2025-11-20T19:00:12+00:00",
            duration=12.25,
            **{
                "anomalies": (Anomaly(code="target-restarted", text="the target was started again"),),
                "figures": {"answer p99 (ms)": 3.25, "streams": 120, "nothing": float("nan")},
                **fields,
            },
        )

    def report(self, **fields: Any) -> Report:
        stopped = fields.pop("stopped", "")
        redactor = fields.pop("redactor", None)
        report = build(
            self.finish(**fields),
            catalogue=self.catalogue,
            profile=self.profile,
            evidence=self.evidence,
            redactor=redactor,
            stopped=stopped,
            basis=basis_of(self.profile, command="epp-conformance run", selection=Selection()),
        )
        write_report(report, self.path)
        return report

    @property
    def path(self) -> Path:
        return self.folder / "report.json"

    @property
    def evidence_path(self) -> Path:
        return self.evidence.path


def fill(made: Made) -> Made:
    """Passes, a failure that its scenario is about, one that it is not about, a crash, a skip."""
    a, b, c = PODS.values()
    for number in range(3):
        made.scenario(
            f"subset.stays-inside[{number}]",
            ("EPP-SUB-01",),
            exchange("x1", a, subset=(a,)),
            {"x1": Expectation(within=(a,))},
            smoke=number == 0,
        )
    made.scenario(
        "subset.escapes",
        ("EPP-SUB-01",),
        [*exchange("x1", b, subset=(a, b)), *exchange("x2", c, subset=(a, b))],
        {"x1": Expectation(within=(a, b)), "x2": Expectation(within=(a, b))},
    )
    made.scenario(
        "subset.empty",
        ("EPP-SUB-02",),
        exchange("x1", a, subset=(), answer=refuses(503)),
        {"x1": Expectation(status=(503,))},
    )
    made.scenario("destination.set", ("EPP-DEST-01",), exchange("x1", a, answer=picks(a, metadata=b)))
    crash = [ProcessStarted(pid=7, command=("sample-picker",)), *exchange("x1", a)]
    crash.append(ProcessExited(pid=7, code=-11, asked=False, output="panic: <script>alert(1)</script>\n\x1b[31mred"))
    made.scenario("robustness.crash", ("ENV-22",), crash)
    made.skipped("errors.no-pool", ("EPP-ERR-03",), "the pool of this target can't be emptied")
    return made


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return Catalogue.load()


@pytest.fixture(scope="session")
def profile() -> Profile:
    return load(PROFILE, Profile, name="profile.yaml")


@pytest.fixture
def made(tmp_path: Path, catalogue: Catalogue, profile: Profile) -> Iterator[Made]:
    """An empty run."""
    run = Made(folder=tmp_path, catalogue=catalogue, profile=profile)
    yield run
    run.evidence.close()


@pytest.fixture
def run(made: Made) -> Made:
    """A run with something of everything, not finished yet."""
    return fill(made)


@pytest.fixture(name="judge")
def small_judge() -> Callable[[Episode, Context, Catalogue], tuple[Finding, ...]]:
    """The judge that the run was judged by."""
    return judge


@pytest.fixture
def say() -> Callable[..., list[Event]]:
    """The maker of exchanges."""
    return exchange


# -- reports of real targets -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def instances() -> tuple[Instance, ...]:
    """The scenario instances that stand for the certified set."""
    return real_reports.part_of_the_suite()


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a report by the name of its set-up; the target is run when it is first asked for."""

    @functools.cache
    def report(name: str) -> Path:
        return real_reports.made(name, tmp_path_factory.mktemp(name))

    def made_or_skipped(name: str) -> Path:
        try:
            return report(name)
        except EnvoyError as problem:
            pytest.skip(str(problem))

    return made_or_skipped
