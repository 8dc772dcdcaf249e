"""Drift: sentences out of documents, compared without their text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.errors import UnknownNameError
from conformance.requirements import drift
from conformance.requirements.catalogue import Catalogue, Sentence
from conformance.strict_yaml import parse

steady = settings(suppress_health_check=[HealthCheck.too_slow])

MARKDOWN = """\
# Tea Protocol

Tea is nice. The pot MUST be *warm*, e.g. by
rinsing it, before use. See [the pot](https://pots.example/MUST).

```go
cup: { "MUST": "stay", }
```

## Serving

For each guest, the host MUST do two things:

1. Pour `tea` into the cup. The cup MUST NOT overflow.
2. Offer [milk](https://milk.example).

   - Cold milk first.

Sugar CAN be offered. Nobody can tell why.

Notes:
- Biscuits are welcome.

## Metrics

The kitchen SHOULD count the following:

| Name | Meaning |
| ---- | ------- |
| cups | all cups |

## History

| Version | Date |
|---------|------|
| 1       | 2020 |
"""

PLAIN = """\
Tea Protocol

Tea is nice. The pot MUST be warm, e.g. by rinsing it, before use. See the pot.

cup: { "stays": "here", }

Serving

For each guest, the host MUST do two things:

  1. Pour tea into the cup. The cup MUST NOT overflow.
  2. Offer milk.

     • Cold milk first.

Sugar CAN be offered. Nobody can tell why.
"""


def texts(document: str) -> list[str]:
    return [sentence.text for sentence in drift.sentences(document)]


def test_normative_sentences_of_markdown() -> None:
    assert texts(MARKDOWN) == [
        "The pot MUST be warm, e.g. by rinsing it, before use.",
        "For each guest, the host MUST do two things:",
        "Pour tea into the cup.",
        "The cup MUST NOT overflow.",
        "Offer milk.",
        "Cold milk first.",
        "Sugar CAN be offered.",
        "The kitchen SHOULD count the following:",
        "Name | Meaning",
        "cups | all cups",
    ]


def test_sections_and_lines() -> None:
    pot, host, pour, *_ = drift.sentences(MARKDOWN)
    assert (pot.section, pot.line) == ("Tea Protocol", 3)
    assert (host.section, host.line) == ("Serving", 12)
    assert (pour.section, pour.line) == ("Serving", 14)


def test_a_plain_copy_has_the_same_sentences() -> None:
    digests = {s.digest for s in drift.sentences(MARKDOWN)}
    assert {s.digest for s in drift.sentences(PLAIN)} < digests
    assert texts(PLAIN) == texts(MARKDOWN)[:7]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("The EPP MUST `answer`.", "the  epp must answer"),
        ("Send it to <ip:port>.", "Send it to `ip:port`"),
        ("OpenAI’s API", "OpenAI's API"),
        ("as follows:", "as follows"),
    ],
)
def test_formatting_does_not_change_a_digest(a: str, b: str) -> None:
    assert drift.normalise(a) == drift.normalise(b)


@pytest.fixture
def tea(tmp_path: Path) -> Catalogue:
    """A catalogue that knows the tea protocol as version 1.0.0, and says of everything that it is no requirement."""
    known = [
        Sentence(topic=f"t{n}", digest=s.digest, fingerprint="", documents=(), requirements=(), reason="tea")
        for n, s in enumerate(drift.sentences(MARKDOWN))
    ]
    known[0] = Sentence(
        topic="pot", digest=known[0].digest, fingerprint="", documents=(), requirements=("ENV-01",), reason=None
    )
    digest = drift.text_digest(MARKDOWN)
    head = "version: 1.0.0\nareas: [tea]\ndocuments:\n" + "".join(
        f"  - {{name: {version}, title: Tea, date: 2025-01-01, source: kitchen, sha256: '{digest}'}}\n"
        for version in ("0.2.0", "0.3.0", "0.4.0", "1.0.0", "next")
    )
    area = (
        "area: tea\ntitle: Tea\nrole: epp\nkind: ext_proc\nsection: Tea\nrequirements:\n"
        "  - {id: ENV-01, title: warm, level: MUST, effect: fail, statement: Warm., observed: Touched.}\n"
    )
    (tmp_path / "catalogue.yaml").write_text(head)
    (tmp_path / "tea.yaml").write_text(area)
    (tmp_path / "sentences.yaml").write_text(drift.render({"1.0.0": MARKDOWN}, known))
    return Catalogue.load(tmp_path)


def test_the_same_document_has_not_drifted(tea: Catalogue) -> None:
    found = drift.compare(MARKDOWN.replace("\n", "\r\n"), "1.0.0", tea)
    assert (found.any, found.same_text, found.known) == (False, True, 10)


def test_wording_outside_normative_sentences_is_only_another_text(tea: Catalogue) -> None:
    found = drift.compare(MARKDOWN.replace("Tea is nice.", "Tea is very nice."), "1.0.0", tea)
    assert (found.any, found.same_text) == (False, False)


def test_new_changed_and_gone_are_told_apart(tea: Catalogue) -> None:
    text = MARKDOWN.replace("before use", "before each use").replace("Sugar CAN be offered. ", "")
    text += "\nGuests MUST say thank you to whoever poured.\n"
    found = drift.compare(text, "1.0.0", tea)
    assert [s.text for s in found.new] == ["Guests MUST say thank you to whoever poured."]
    assert [(c.known.topic, c.found.text) for c in found.changed] == [
        ("pot", "The pot MUST be warm, e.g. by rinsing it, before each use.")
    ]
    assert [s.topic for s in found.gone] == ["t6"]
    assert found.requirements == ("ENV-01",)
    assert found.any


def test_unknown_documents(tea: Catalogue) -> None:
    with pytest.raises(UnknownNameError, match=r"1\.0\.1"):
        drift.compare("", "1.0.1", tea)


def test_new_sentences_must_be_completed_by_hand(tea: Catalogue) -> None:
    text = drift.render({"1.0.0": MARKDOWN + "\nCups MUST be clean.\n"}, tea.sentences)
    entries = parse(text).data["sentences"]
    assert [e["topic"] for e in entries] == [*(s.topic for s in tea.sentences), ""]
    assert "requirements" not in entries[-1]
    assert "reason" not in entries[-1]
    assert "clean" not in text


def test_every_document_of_the_catalogue_is_covered() -> None:
    catalogue = Catalogue.load()
    testable = {r.id for r in catalogue if r.testable}
    for document in catalogue.documents:
        covered = drift.coverage(document, testable)
        groups = (covered.tested, covered.pending, covered.untestable, covered.no_requirement)
        assert sum(map(len, groups)) == sum(document in s.documents for s in catalogue.sentences) > 0
    assert not drift.coverage("1.0.0", testable).untestable
    assert all(s.reason for s in drift.coverage("1.0.0", testable).no_requirement)


WORDS = st.lists(st.sampled_from(["MUST", "tea", "is", "warm.", "-", "1.", "|", "#", "```", "\n", "\n\n", ":", "`x`"]))


@steady
@given(WORDS)
def test_any_document_gives_sentences_once_each(words: list[str]) -> None:
    found = drift.sentences(" ".join(words))
    assert len({s.digest for s in found}) == len(found)
    assert all(len(s.fingerprint) == 32 for s in found)


@steady
@given(st.text(max_size=200))
def test_extraction_survives_any_text(text: str) -> None:
    drift.sentences(text)
    assert drift.text_digest(text) == drift.text_digest(text + "\n")


@steady
@given(st.lists(st.sampled_from(MARKDOWN.split()), min_size=2, max_size=20))
def test_a_fingerprint_is_close_to_itself_only(words: list[str]) -> None:
    one = drift.Found(text=" ".join(words), section="", line=1)
    assert drift._shared(one.fingerprint, one.fingerprint) == 32
    other = drift.Found(text="entirely different words stand in this sentence here", section="", line=1)
    assert drift._shared(one.fingerprint, other.fingerprint) < drift.SIMILAR
