"""Exchanges told as they happen, and judged when they are over: for `epp-conformance proxy`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from conformance.evidence.episode import Context, Episode, HarnessTrouble
from conformance.reading.owed import OwedAnswer, owed_answer
from conformance.report.render.transcript import transcript
from conformance.requirements.catalogue import Catalogue
from conformance.run.engine import LagMeter
from conformance.tap.judging import judged
from conformance.tap.metrics import Tally
from conformance.tap.redaction import LiveRedaction
from conformance.tap.wording import finding_text
from ext_proc.record import Entry, ExchangeOpened, HalfClosed, Malformed, Message, StreamEnded, StreamOpened, Wait

WIDTH = 160

WHOLE = 4 * 1024 * 1024
"""Bytes of messages that are kept whole of one exchange; of later ones the bodies are cut."""

WHOLE_OF_ALL = 64 * 1024 * 1024
"""The same of all exchanges that are open."""

KEPT = 512
"""Bytes kept of a body that is cut."""

EVENTS = 10_000
"""Events that are kept of one exchange: judges need some kilobytes for each."""

OF_A_STREAM = (StreamOpened, Message, Malformed, HalfClosed)
"""Events that are judged where there are more."""


class Narrator:
    """A listener of a recorder that prints each event of an exchange with `show`; `details` prints all that it says.

    With `context` an exchange is judged once it is `finished`, and what was found is printed. How long an answer may
    take is for the data plane to say that waits for it: what it waited for in vain is in its record. It proves nothing
    where our own loop stood still, as `lag` tells.
    """

    def __init__(
        self,
        show: Callable[[str], None],
        *,
        context: Context | None,
        details: bool = False,
        lag: LagMeter | None = None,
    ) -> None:
        self.tally = Tally()
        self._show = show
        self._context = context
        self._details = details
        self._catalogue = Catalogue.load()
        self._entries: dict[str, list[Entry]] = {}
        self._began: dict[str, int] = {}
        self._sizes: Counter[str] = Counter()
        self._lag = lag or LagMeter()
        self._trouble: dict[str, str] = {}
        self._cut = LiveRedaction(secrets=False, body=KEPT)

    def __call__(self, entry: Entry) -> None:
        """Tell what happened."""
        name = entry.event.exchange
        if name is None or (name not in self._entries and not isinstance(entry.event, ExchangeOpened)):
            return  # of no exchange, or of one that is over
        began = self._began.setdefault(name, entry.t)
        kept = self._entries.setdefault(name, [])
        if len(kept) < EVENTS:
            kept.append(self._kept(name, entry))
        self._waited(name, entry)
        for line in transcript(Episode(id=name, entries=(entry,)), name):
            summary = f": {line.summary}" if line.summary else ""
            text = f"{name}  {(entry.t - began) / 1e6:9.1f} ms  {line.who:12}  {line.what}{summary}"
            self._show(text if len(text) <= WIDTH else text[: WIDTH - 1] + "…")
            for detail in line.details if self._details else ():
                self._show(f"{'':{len(name) + 16}}    {detail}")

    def stop(self) -> None:
        """No more comes: exchanges that are not over are judged by what was said."""
        for name in list(self._entries):
            self.finished(name)

    def finished(self, name: str) -> None:
        """An exchange is over."""
        entries = self._entries.pop(name, [])
        self._began.pop(name, None)
        self._sizes.pop(name, None)
        trouble = self._trouble.pop(name, "")
        if self._context is None:
            return
        if not entries:
            return
        if any(isinstance(one.event, StreamEnded) and not one.event.stream for one in entries):
            self._show(f"{name}  ? not judged: the EPP could not be reached")
            return
        cut = len(entries) == EVENTS
        if cut:  # as a tap sees it: what model server and client got is not there to its end
            entries = [one for one in entries if isinstance(one.event, OF_A_STREAM)]
        if trouble:
            end = entries[-1]
            entries.append(Entry(end.seq + 1, end.t, HarnessTrouble(exchange=name, what=trouble)))
        episode = Episode(id=name, entries=tuple(entries))
        result = judged(episode, self._context, self._catalogue)
        self.tally.add(result)
        if result.problem:
            self._show(f"{name}  could not be judged: {result.problem}")
        for finding in result.findings:
            self._show(finding_text(finding, episode, self._catalogue))
        if cut:
            self._show(f"{name}  ? judged by its first {EVENTS} events")
        elif not result.findings and not result.problem:
            owed = owed_answer(entries)
            self._show(f"{name}  " + (_unpaid(owed, entries[-1]) if owed else "✓ no rule broken"))

    def _waited(self, name: str, entry: Entry) -> None:
        """Note why a wait in vain proves nothing, if it does not."""
        wait = entry.event
        if isinstance(wait, Wait) and wait.outcome == "expired" and self._context is not None:
            trouble = self._lag.excuse(wait.seconds, wait.what, due=self._context.deadline)
            self._trouble[name] = trouble or self._trouble.get(name, "")

    def _kept(self, name: str, entry: Entry) -> Entry:
        """The entry as it waits for the judges: rules about bodies are not applied to one that was cut."""
        event = entry.event
        if isinstance(event, Message):
            if self._sizes[name] + len(event.raw) > WHOLE or self._sizes.total() > WHOLE_OF_ALL:
                event = self._cut(event)
            self._sizes[name] += len(event.raw) if isinstance(event, Message) else 0
        return Entry(entry.seq, entry.t, event)


def _unpaid(owed: OwedAnswer, end: Entry) -> str:
    seconds = (end.t - owed.since.entry.t) / 1e9
    waited = f"after {seconds:.1f} s, when the exchange ended"
    return f"? {owed.part} had no answer {waited}; no rule says how long it may take"
