"""A thorough forger: what is changed is summed up, rendered and sealed again with the suite's own code."""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conformance.outcome import version_outcome
from conformance.report.document.build import overall, version_row
from conformance.report.document.canonical import digest
from conformance.report.document.model import Report, write_report
from conformance.report.document.model import seal as sealed
from conformance.report.document.rows import RequirementRow
from conformance.report.render.html import html
from conformance.report.render.junit import junit
from conformance.report.render.markdown import summary
from conformance.report.verify.again import JudgedAgain
from conformance.report.verify.expected import Expected
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import Instance
from forging.remembered import judged_once, lines_are_remembered

Json = dict[str, Any]


class Forger:
    """A report with its evidence, to be changed, then written."""

    def __init__(self, folder: Path) -> None:
        self.report = in_full(json.loads((folder / "report.json").read_text()))
        self.raw_evidence: bytes | None = None
        packed = (folder / "evidence.ndjson.gz").read_bytes()
        self.blocks: list[Json] = []
        self.episodes: dict[str, Json] = {}
        """By the digest of their line, before any change."""
        for raw in gzip.decompress(packed).splitlines():
            line = json.loads(raw)
            if "block" in line:
                self.blocks.append(line)
            else:
                self.episodes[hashlib.sha256(raw).hexdigest()] = line
        self.texts: dict[str, str] = {}
        """Files beside the report that say something else than it does."""

    # -- what there is -------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> list[Json]:
        return self.report["results"]

    def row(self, which: Callable[[Json], bool] | str) -> Json:
        """The first result with this id, or for which a function is true."""
        found = (lambda row: row["id"] == which) if isinstance(which, str) else which
        return next(row for row in self.rows if found(row))

    def verdict(self, verdict: str) -> Json:
        """The first result with a verdict that counts."""
        return self.row(lambda row: row["verdict"] == verdict and not row["provisional"])

    def episode(self, row: Json) -> Json:
        return self.episodes[row["evidence"]]

    def drop(self, row: Json, *, evidence: bool = True) -> None:
        """Leave a result out, and its episode."""
        self.rows.remove(row)
        if evidence and row["evidence"]:
            del self.episodes[row["evidence"]]

    def drop_unused_blocks(self) -> None:
        """Leave out the blocks that no episode has any more: they would give away that something was cut out."""
        kept = json.dumps([*self.episodes.values()])
        self.blocks = [one for one in self.blocks if one["block"] in kept]

    def whiten(self, row: Json) -> None:
        """Every failure of a result becomes a pass, in it and nowhere else."""
        failed = [one for one in row["findings"] if one["verdict"] == "fail"]
        row["findings"] = [one for one in row["findings"] if one["verdict"] != "fail"]
        row["passed"] = [*row["passed"], *(one["requirement"] for one in failed)]
        row.update(verdict="pass", reason="")

    def excuse(self, row: Json, verdict: str, reason: str, *, evidence: bool = False) -> None:
        """A result becomes one that was not reached."""
        if not evidence and row["evidence"]:
            del self.episodes[row["evidence"]]
            row["evidence"] = None
        row.update(verdict=verdict, reason=reason, findings=[], passed=[], notApplicable=[])

    # -- written again -------------------------------------------------------------------------------------------------

    def write(self, folder: Path, catalogue: Catalogue, *, sums: bool = True, seal: bool = True) -> Path:
        """The folder of the forged report. Without `sums` or `seal`, that is left as it is."""
        folder.mkdir(parents=True, exist_ok=True)
        self._evidence(folder / "evidence.ndjson.gz")
        if sums:
            self._sum(catalogue)
        if seal:
            self.report["digest"] = digest(self.report)
        (folder / "report.json").write_text(json.dumps(self.report))
        if sums:
            report = sealed(self.report) if seal else Report.of(self.report)
            write_report(report, folder / "report.json")
            (folder / "summary.md").write_text(summary(report))
            (folder / "junit.xml").write_text(junit(report))
            (folder / "report.html").write_text(
                html(report, None if self.raw_evidence else folder / "evidence.ndjson.gz")
            )
        for name, text in self.texts.items():
            (folder / name).write_text(text)
        return folder / "report.json"

    def judge_again(self, folder: Path, catalogue: Catalogue, instances: Sequence[Instance]) -> None:
        """Every result becomes what the suite's own judges say of the evidence that was written to `folder`."""
        report = Report.of(json.loads((folder / "report.json").read_text()))
        again = JudgedAgain(report, catalogue, judged_once, Expected(report, catalogue, instances))
        with lines_are_remembered():
            again.evidence(folder / "evidence.ndjson.gz")
        again.without_evidence()
        rows = tuple(again.rows.get((row.version, row.id), row) for row in report.results)
        self.report["results"] = in_full(report.model_copy(update={"results": rows}).document())["results"]

    def _evidence(self, path: Path) -> None:
        if self.raw_evidence is not None:
            path.write_bytes(self.raw_evidence)
            return
        lines = [_dumps(block) for block in self.blocks]
        for old, episode in self.episodes.items():
            lines.append(_dumps(episode))
            new = hashlib.sha256(lines[-1]).hexdigest()
            for row in self.rows:
                if row["evidence"] == old:
                    row["evidence"] = new
        whole = b"".join(line + b"\n" for line in lines)
        path.write_bytes(gzip.compress(whole, compresslevel=1, mtime=0))
        if self.report["evidence"] is not None:
            self.report["evidence"].update(
                episodes=len(self.episodes), bytes=len(whole), sha256=hashlib.sha256(whole).hexdigest()
            )

    def _sum(self, catalogue: Catalogue) -> None:
        report = Report.of({**self.report, "digest": "sha256:" + "0" * 64})
        versions, requirements = [], []
        for row in report.versions:
            outcome = version_outcome(
                catalogue,
                row.version,
                report.results_of(row.version),
                role=report.implementation.role,
                claimed=row.claimed,
                complete=row.complete,
            )
            versions.append(version_row(catalogue, outcome))
            requirements += [RequirementRow.of(row.version, one) for one in outcome.requirements]
        self.report["versions"] = [one.model_dump(mode="json", by_alias=True) for one in versions]
        self.report["requirements"] = [one.model_dump(mode="json", by_alias=True) for one in requirements]
        complete = bool(versions) and not self.report["stopped"]
        self.report["result"] = overall(versions, complete=complete).value
        self.report["complete"] = complete and all(one.complete for one in versions)


def _dumps(line: Any) -> bytes:
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def in_full(document: Json) -> Json:
    """A report whose results have their own lists of requirements."""
    lists = document.pop("lists")
    for row in document["results"]:
        row.update({name: copied(lists[row[name]]) for name in ("passed", "notApplicable")})
    return document


def copied(value: Any) -> Any:
    """A deep copy."""
    return copy.deepcopy(value)
