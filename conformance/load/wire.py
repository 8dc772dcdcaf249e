"""What the machines that share a load say to each other, as bytes: JSON of known forms, nothing that could be run.

`encode` writes a command for a generator or one of its answers; `decode` reads it, and refuses anything else.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from conformance.errors import ConformanceError, HarnessError, IncompleteError, UsageError
from conformance.evidence.episode import PodFact, ProcessExited, from_json, to_json
from conformance.load.examples import Example, KeptExchange
from conformance.load.generators import Begin, GetReady, Share, ShareEnd, ShareReport, Stop
from conformance.load.mix import LoadFile
from conformance.load.moments import ShownLoad, State
from conformance.load.settings import LoadSettings
from conformance.load.totals import Totals
from conformance.load.traffic import LoadTally
from conformance.targets.profile import Profile, Start
from conformance.verdict import Verdict
from ext_proc import record_json
from ext_proc.record import Entry

FORM = 4
"""The number of these forms: machines whose numbers differ do not understand each other."""

Message: TypeAlias = Share | GetReady | Begin | Stop | ProcessExited | ShareReport | ConformanceError

Count: TypeAlias = Annotated[int, Field(ge=0)]
Seconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class WireError(HarnessError):
    """Bytes are not what `encode` writes."""

    code = "harness.wire"


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Word(_Form):
    """A command that is no more than its name."""

    kind: Literal["getReady", "begin", "stop"]

    def message(self) -> Message:
        return _WORDS[self.kind]


_WORDS: Mapping[str, GetReady | Begin | Stop] = {"getReady": GetReady(), "begin": Begin(), "stop": Stop()}


class _Exited(_Form):
    kind: Literal["exited"]
    event: dict[str, Any]

    @classmethod
    def of(cls, event: ProcessExited) -> _Exited:
        return cls(kind="exited", event=record_json.to_json(Entry(0, 0, event)))

    def message(self) -> Message:
        event = record_json.from_json(self.event).event
        if not isinstance(event, ProcessExited):
            raise ValueError(f"{event.kind} is not the end of a process")
        return event


class _Problem(_Form):
    kind: Literal["problem"]
    exit_code: Literal[2, 3, 4]
    text: str
    hint: str = ""

    @classmethod
    def of(cls, problem: ConformanceError) -> _Problem:
        return cls(kind="problem", exit_code=problem.exit_code, text=problem.message, hint=problem.hint)

    def message(self) -> Message:
        return _PROBLEMS[self.exit_code](self.text, hint=self.hint)


_PROBLEMS: Mapping[int, type[ConformanceError]] = {2: UsageError, 3: HarnessError, 4: IncompleteError}


class _Share(_Form):
    kind: Literal["share"]
    profile: Profile
    file: LoadFile
    version: str
    seed: int
    at_once: Annotated[int, Field(ge=1)]
    memory: Count
    index: Count
    of: Annotated[int, Field(ge=1)]
    head: str
    address: str
    endpoints: dict[str, tuple[str, ...]]
    pods: tuple[PodFact, ...]
    loads: dict[str, ShownLoad]
    grace: Seconds

    @classmethod
    def of_share(cls, share: Share) -> _Share:
        settings, pool = share.settings, share.pool
        assert isinstance(pool, State), "a file with the pool's history is for processes of one machine"
        return cls(
            kind="share",
            # how the target is started is not the generators' concern, and may hold secrets
            profile=settings.profile.model_copy(update={"start": Start()}),
            file=settings.file,
            version=settings.version,
            seed=settings.seed,
            at_once=settings.at_once,
            memory=settings.memory,
            index=settings.index,
            of=settings.of,
            head=settings.head,
            address=share.address,
            endpoints=dict(share.endpoints),
            pods=pool.pods,
            loads=dict(pool.loads),
            grace=share.grace,
        )

    def message(self) -> Message:
        settings = LoadSettings(
            profile=self.profile,
            version=self.version,
            values={},
            file=self.file,
            seed=self.seed,
            at_once=self.at_once,
            memory=self.memory,
            index=self.index,
            of=self.of,
            head=self.head,
        )
        pool = State(self.pods, self.loads)
        return Share(settings=settings, address=self.address, endpoints=self.endpoints, pool=pool, grace=self.grace)


class _End(_Form):
    complete: bool
    examples: tuple[Example, ...]
    shown: dict[str, dict[str, Any]]
    vitals: dict[str, float]

    @classmethod
    def of(cls, end: ShareEnd) -> _End:
        return cls(
            complete=end.complete,
            examples=tuple(end.examples),
            shown={name: to_json(one.episode, one.context) for name, one in end.shown.items()},
            vitals=dict(end.vitals),
        )

    def message(self) -> ShareEnd:
        shown = {name: KeptExchange(*from_json(one)) for name, one in self.shown.items()}
        missing = sorted({one.episode for one in self.examples} - shown.keys())
        if missing:
            raise ValueError(f"the exchange {missing[0]} is named as an example, and is not there")
        return ShareEnd(complete=self.complete, examples=self.examples, shown=shown, vitals=self.vitals)


class _Report(_Form):
    kind: Literal["report"]
    covered: Seconds
    totals: Totals
    exchanges: Count
    failed: Count
    undecided: Count
    findings: tuple[tuple[str, Verdict, int], ...]
    begun: Count
    by_shape: dict[str, Count]
    unfinished: Count
    lost_with_process: Count
    times: dict[str, str]
    end: _End | None = None

    @classmethod
    def of(cls, report: ShareReport) -> _Report:
        assert not report.troubles, "trouble is for processes of one machine"
        return cls(
            kind="report",
            covered=report.covered,
            totals=report.totals,
            exchanges=report.tally.exchanges,
            failed=report.tally.failed,
            undecided=report.tally.undecided,
            findings=tuple((name, verdict, count) for (name, verdict), count in report.tally.counts.items()),
            begun=report.begun,
            by_shape=dict(report.by_shape),
            unfinished=report.unfinished,
            lost_with_process=report.lost_with_process,
            times={name: base64.b64encode(_little_endian(own)).decode() for name, own in report.times.items()},
            end=None if report.end is None else _End.of(report.end),
        )

    def message(self) -> Message:
        return ShareReport(
            covered=self.covered,
            totals=self.totals,
            tally=LoadTally.of(
                self.exchanges, self.failed, self.undecided, {(name, one): n for name, one, n in self.findings}
            ),
            begun=self.begun,
            by_shape=Counter(self.by_shape),
            unfinished=self.unfinished,
            lost_with_process=self.lost_with_process,
            troubles=(),
            times={name: _times(packed) for name, packed in self.times.items()},
            end=None if self.end is None else self.end.message(),
        )


def _times(packed: str) -> array[float]:
    times = _little_endian(array("d", base64.b64decode(packed, validate=True)))
    if not all(map(math.isfinite, times)):
        raise ValueError("a time is no number")
    return times


def _little_endian(times: array[float]) -> array[float]:
    if sys.byteorder == "little":
        return times
    swapped = array("d", times)
    swapped.byteswap()
    return swapped


_forms: TypeAdapter[Any] = TypeAdapter(
    Annotated[_Word | _Exited | _Problem | _Share | _Report, Field(discriminator="kind")]
)


def encode(message: Message) -> bytes:
    """The message as bytes."""
    match message:
        case Share():
            form: _Form = _Share.of_share(message)
        case ShareReport():
            form = _Report.of(message)
        case ProcessExited():
            form = _Exited.of(message)
        case ConformanceError():
            form = _Problem.of(message)
        case _:
            form = _Word(kind=next(kind for kind, word in _WORDS.items() if word == message))
    plain = form.model_dump(mode="json", exclude_unset=True)  # an exchange tells what is not given from what is empty
    return json.dumps(plain, separators=(",", ":")).encode()  # pydantic's own writes no text that is not valid Unicode


def decode(data: bytes) -> Message:
    """What `encode` wrote. Raises `WireError`."""
    try:
        found: Message = _forms.validate_python(json.loads(data)).message()
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "all of it"
        raise WireError(f"a message of another machine can't be read: {place}: {first['msg']}") from problem
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as problem:
        raise WireError(f"a message of another machine can't be read: {problem}") from problem
    return found
