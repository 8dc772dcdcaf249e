"""Evidence that is read and judged once for all reports that have it: a forgery changes one episode of a hundred.

Findings follow from an episode, its context and the catalogue; and an episode from its line and the blocks in it, which
are named by their digests. So the same line gives the same findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from conformance.evidence.episode import Context, Episode
from conformance.evidence.store import EvidenceLine
from conformance.judges import judge
from conformance.report.verify.verification import Verification, verify
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import Instance
from conformance.verdict import Finding

_Arguments = tuple[Episode, Context, Catalogue]

_lines: dict[str, tuple[tuple[Episode, Context, bool], frozenset[str]]] = {}
"""By the digest of a line what it says, and which blocks it needs."""

_judged: dict[tuple[int, ...], tuple[_Arguments, tuple[Finding, ...]]] = {}
"""By the identities of the arguments, which are kept so that no other object gets these."""

_read_cut = EvidenceLine.read_cut


def verified(folder: Path, instances: Sequence[Instance]) -> Verification:
    """`verify` a report beside its evidence."""
    with lines_are_remembered():
        return verify(
            folder / "report.json", folder / "evidence.ndjson.gz", instances=instances, judge=judged_once
        )  # fmt: skip


@contextmanager
def lines_are_remembered() -> Iterator[None]:
    """Lines that were read before are not read again."""
    with patch.object(EvidenceLine, "read_cut", _read_once):
        yield


def judged_once(episode: Episode, context: Context, catalogue: Catalogue) -> tuple[Finding, ...]:
    """What the suite's judges say."""
    arguments = (episode, context, catalogue)
    key = tuple(map(id, arguments))
    if key not in _judged:
        _judged[key] = arguments, judge(*arguments)
    return _judged[key][1]


def _read_once(line: EvidenceLine) -> tuple[Episode, Context, bool]:
    blocks = line.blocks
    if line.sha256 in _lines:
        read, needed = _lines[line.sha256]
        if _are_there(line, needed):
            return read
    used, blocks.used = blocks.used, set()
    try:
        read = _read_cut(line)
        _lines[line.sha256] = read, frozenset(blocks.used)
    finally:
        blocks.used |= used
    return read


def _are_there(line: EvidenceLine, needed: frozenset[str]) -> bool:
    """Whether a line's blocks are in its file. They are used then."""
    try:
        for name in needed:
            line.blocks.begin()
            line.blocks.unpack({"parts": [{"sha256": name}]})
    except ValueError:
        return False
    return True
