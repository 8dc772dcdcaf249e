"""`ask(script, …)`: what the judges say about a script, as the set of violations and a verdict per requirement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from scripted import Script

from conformance.evidence.episode import Context
from conformance.judges import judge
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Finding, Verdict, worst


@dataclass(frozen=True)
class Verdicts:
    findings: tuple[Finding, ...]

    def __getitem__(self, requirement: str) -> Verdict | None:
        found = [finding.verdict for finding in self.findings if finding.requirement == requirement]
        return worst(found) if found else None

    def of(self, *verdicts: Verdict) -> set[str]:
        return {finding.requirement for finding in self.findings if finding.verdict in verdicts}

    @property
    def failed(self) -> set[str]:
        return self.of(Verdict.FAIL)

    @property
    def warned(self) -> set[str]:
        return self.of(Verdict.WARN)

    @property
    def blamed(self) -> set[str]:
        return self.of(Verdict.FAIL, Verdict.WARN, Verdict.INCONCLUSIVE, Verdict.ERROR)

    def finding(self, requirement: str) -> Finding:
        return next(finding for finding in self.findings if finding.requirement == requirement)


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return Catalogue.load()


@pytest.fixture
def ask(catalogue: Catalogue):
    def ask(script: Script, version: str = "1.0.0", **context: Any) -> Verdicts:
        return Verdicts(judge(script.episode, Context(version=version, scenario="t", **context), catalogue))

    return ask
