"""The process that judges live traffic: batches in, results out, transcripts into a file.

`conformance.tap.judge_process` starts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from conformance.evidence.episode import Episode
from conformance.judges.remembered import RememberedVerdicts
from conformance.requirements.catalogue import Catalogue
from conformance.run.child_process import Say
from conformance.run.engine import EngineThread
from conformance.tap.files import TranscriptWriter
from conformance.tap.gathering import Gathered
from conformance.tap.judging import BOTH, JudgedExchange, JudgingSettings, episode, judged
from conformance.tap.wording import Worth, finding_text


class LiveJudge:
    """Judges batch after batch of exchanges, each in its order."""

    def __init__(self, engine: EngineThread, say: Say, settings: JudgingSettings) -> None:  # noqa: ARG002 - a `Service`
        self._say = say
        self._settings = settings
        self._catalogue = Catalogue.load()
        self._memory = RememberedVerdicts(settings.context, self._catalogue, BOTH)
        self._worth = Worth(settings.print_each)
        self._writer: TranscriptWriter | None = None
        self._trouble = ""

    async def carry_out(self, command: Sequence[Gathered]) -> None:
        """Judge these exchanges."""
        self._say([self._judged(one) for one in command])

    async def close(self, *, hurry: bool) -> None:
        """Transcripts are written as they come."""

    def _judged(self, gathered: Gathered) -> JudgedExchange:
        seen = episode(gathered, self._settings.context.deadline)
        result = judged(seen, self._settings.context, self._catalogue, roles=BOTH, memory=self._memory)
        shown = []
        for finding in result.findings:
            if self._worth(finding):
                more = "more of these are counted, not printed" if self._worth.last(finding) else gathered.note
                shown.append(finding_text(finding, seen, self._catalogue, note=more))
        result = replace(result, shown=tuple(shown), partial=gathered.reason in ("cut", "idle"))
        if self._settings.record is not None and (result.failed or not self._settings.record_failures_only):
            trouble = self._write(gathered, seen)
            if trouble != self._trouble:  # told when it begins
                self._trouble = trouble
                result = replace(result, problem=result.problem or trouble)
            result = replace(result, unwritten=bool(trouble))
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
