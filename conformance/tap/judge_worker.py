"""The process that judges live traffic: batches in, results out, transcripts into a file.

It is started by `conformance.tap.judge_process`, talks to it alone, and ends when its input does.
"""

from __future__ import annotations

import pickle
import signal
import sys
from dataclasses import replace
from typing import Any, BinaryIO

from conformance.evidence.episode import Episode
from conformance.judges.remembered import RememberedVerdicts
from conformance.requirements.catalogue import Catalogue
from conformance.tap.files import TranscriptWriter
from conformance.tap.gathering import Gathered
from conformance.tap.judge_process import LENGTH, JudgingSettings
from conformance.tap.judging import BOTH, JudgedExchange, episode, judged
from conformance.tap.wording import Worth, finding_text


def main() -> None:
    """Judge what comes in until nothing more does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the tap, which then ends us
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever prints must not do so between results
    settings = _read(source)
    if settings is None:
        return
    bench = Bench(settings)
    while (batch := _read(source)) is not None:
        data = pickle.dumps([bench(one) for one in batch], pickle.HIGHEST_PROTOCOL)
        sink.write(LENGTH.pack(len(data)) + data)
        sink.flush()


class Bench:
    """Judges one exchange after the other."""

    def __init__(self, settings: JudgingSettings) -> None:
        self._settings = settings
        self._catalogue = Catalogue.load()
        self._memory = RememberedVerdicts(settings.context, self._catalogue, BOTH)
        self._worth = Worth(settings.print_each)
        self._writer: TranscriptWriter | None = None
        self._trouble = ""

    def __call__(self, gathered: Gathered) -> JudgedExchange:
        """Judge one exchange. Never raises."""
        seen = episode(gathered)
        result = judged(seen, self._settings.context, self._catalogue, roles=BOTH, memory=self._memory)
        shown = []
        for finding in result.findings:
            if self._worth(finding):
                more = "more of these are counted, not printed" if self._worth.last(finding) else gathered.note
                shown.append(finding_text(finding, seen, self._catalogue, note=more))
        result = replace(result, shown=tuple(shown))
        if self._settings.record is not None and (result.failed or not self._settings.record_failures_only):
            trouble = self._write(gathered, seen)
            if trouble != self._trouble:  # told when it begins
                self._trouble = trouble
                result = replace(result, problem=result.problem or trouble)
        return result

    def _write(self, gathered: Gathered, seen: Episode) -> str:
        """Write the transcript; what went wrong, if anything."""
        settings = self._settings
        assert settings.record is not None
        try:
            if self._writer is None:
                self._writer = TranscriptWriter(settings.record, settings.record_limit)
            self._writer.write(seen, settings.context, reason=gathered.reason, note=gathered.note)
        except OSError as problem:
            return f"transcripts can't be written: {problem}"
        return f"{settings.record} has reached its limit: no more transcripts are written" if self._writer.full else ""


def _read(source: BinaryIO) -> Any:
    """The next pickle of the process that started us; None at the end."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    return pickle.loads(source.read(size))


if __name__ == "__main__":
    main()
