"""The catalogue: complete, consistent, and strict about what its files may say."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.errors import UnknownNameError
from conformance.requirements.catalogue import Catalogue, Requirement
from conformance.requirements.schema import VERSIONS
from conformance.scenario.loader import load
from conformance.strict_yaml import FileError


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue.load()


def test_ids_follow_each_other_in_their_family(catalogue: Catalogue) -> None:
    """No id is left out or used again: a report of last year means the same requirement by it."""
    families: dict[str, list[str]] = {}
    for name in catalogue.requirements:
        families.setdefault(name.rpartition("-")[0], []).append(name)
    for family, names in families.items():
        assert names == [f"{family}-{number:02}" for number in range(1, len(names) + 1)]


def test_roles_follow_the_ids(catalogue: Catalogue) -> None:
    roles = {"ENV": "epp", "EPP": "epp", "RAR": "epp", "DP": "data-plane", "MS": "model-server"}
    assert all(r.role == roles[r.id.partition("-")[0]] for r in catalogue)
    assert all((r.kind == "ext_proc") == r.id.startswith("ENV") for r in catalogue)


def test_untested_requirements_have_a_reason(catalogue: Catalogue) -> None:
    for requirement in catalogue:
        assert requirement.testable == (not requirement.pending and not requirement.untestable), requirement.id
        assert not (requirement.pending and requirement.untestable), requirement.id


def test_testable_requirements_have_a_scenario_or_are_universal(catalogue: Catalogue) -> None:
    named = {catalogue.get(name).id for one in load(catalogue) for name in one.scenario.requirements}
    assert [one.id for one in catalogue if one.testable and not one.universal and one.id not in named] == []


def test_effects_follow_levels(catalogue: Catalogue) -> None:
    """What a document says fails; what is derived warns, or says why it fails: it amounts to a hang or to a crash."""
    for requirement in catalogue:
        effects = set(requirement.effects.values())
        if requirement.level in ("MUST", "MUST NOT"):
            assert "fail" in effects, requirement.id
        if requirement.level == "INFO":
            assert effects == {"info"}, requirement.id
        assert requirement.effects == {v: catalogue.effect(requirement.id, v) for v in requirement.effects}
        if requirement.level == "DERIVED" and "fail" in effects:
            assert requirement.reading, requirement.id
            assert requirement.why, requirement.id


def test_lookups(catalogue: Catalogue) -> None:
    requirement = catalogue.get("EPP-MODEL-01")
    assert (requirement.since, requirement.until) == ("0.3.0", "0.4.0")
    assert requirement.counts("0.3.0")
    assert not requirement.counts("1.0.0")
    assert not requirement.applies("1.0.0")
    assert catalogue.effect("EPP-MODEL-01", "1.0.0") is None
    assert catalogue.get("EPP-SUB-01").until is None
    assert "EPP-SUB-01" in catalogue
    assert "EPP-NONE-00" not in catalogue
    assert catalogue.specification("1.0.0").date == "2025-07-29"
    assert {r.role for r in catalogue.for_version("1.0.0", None)} == {"epp", "data-plane", "model-server"}
    assert {r.role for r in catalogue.for_version("1.0.0")} == {"epp"}


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda c: c.get("epp-sub-1"), "EPP-SUB-01"),
        (lambda c: c.for_version("1.0"), "1.0.0"),
        (lambda c: c.specification("0.3"), "0.3.0"),
    ],
)
def test_unknown_names_offer_the_nearest(catalogue: Catalogue, call: object, hint: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        call(catalogue)  # type: ignore[operator]
    assert hint in caught.value.hint


def test_normative_requirements_have_a_sentence(catalogue: Catalogue) -> None:
    """Each requirement that a document states is tied to its sentences in each version where it counts."""
    exempt = {"DP-DEST-01", "DP-DEST-03", "EPP-STRM-01", "EPP-STRM-02"}
    for requirement in catalogue:
        if requirement.level in ("MUST", "MUST NOT") and requirement.role != "model-server":
            assert requirement.sentences, requirement.id
            for version in requirement.effects:
                assert requirement.id in exempt or version in requirement.sentences, (requirement.id, version)


def test_sentences_only_bind_where_the_requirement_applies(catalogue: Catalogue) -> None:
    for requirement in catalogue:
        for document in requirement.sentences:
            assert document not in VERSIONS or requirement.applies(document), (requirement.id, document)


def test_requirements_are_values(catalogue: Catalogue) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        catalogue.get("ENV-01").title = "x"  # type: ignore[misc]
    assert Catalogue.load() is catalogue


# -- files that are wrong ----------------------------------------------------------------------------------------------

DIGEST, FINGERPRINT = "ab" * 32, "cd" * 16
HEAD = "version: 1.0.0\nareas: [subset]\ndocuments:\n" + "".join(
    f"  - {{name: {version}, title: t, date: 2025-01-01, source: s, sha256: '{DIGEST}'}}\n" for version in VERSIONS
)
AREA = """\
area: subset
title: Subset
role: epp
kind: protocol
section: Endpoint Subset
requirements:
  - id: EPP-SUB-01
    aliases: [EPP-SUB-00]
    title: one
    level: MUST
    effect: fail
    statement: says one
    observed: seen
  - id: EPP-SUB-02
    title: two
    level: MAY
    since: 0.3.0
    until: 1.0.0
    effect: {0.3.0: info, 0.4.0: warn, 1.0.0: fail}
    statement: says more than EPP-SUB-01
    observed: seen
"""
SENTENCES = f"""\
sentences:
  - topic: inside
    digest: "{DIGEST}"
    fingerprint: "{FINGERPRINT}"
    documents: [0.3.0, 1.0.0]
    requirements: [EPP-SUB-01]
"""


def written(folder: Path, head: str = HEAD, area: str = AREA, sentences: str = SENTENCES) -> Path:
    for name, text in (("catalogue", head), ("subset", area), ("sentences", sentences)):
        (folder / f"{name}.yaml").write_text(text)
    return folder


def test_a_small_catalogue(tmp_path: Path) -> None:
    small = Catalogue.load(written(tmp_path))
    one, two = small
    assert one.sentences == {"0.3.0": (DIGEST,), "1.0.0": (DIGEST,)}
    assert dict(two.effects) == {"0.3.0": "info", "0.4.0": "warn", "1.0.0": "fail"}
    assert small.get("EPP-SUB-00") is one
    assert (len(small), small.areas) == (2, {"subset": "Subset"})


def test_the_digest_is_that_of_the_data(tmp_path: Path) -> None:
    first = Catalogue.load(written(tmp_path)).digest
    assert Catalogue.load(written(tmp_path, area=f"# a comment\n{AREA}")).digest == first
    assert Catalogue.load(written(tmp_path, area=AREA.replace("title: two", "title: 2nd"))).digest != first


R, S = "requirements/subset.yaml", "sentences.yaml"
BROKEN = {
    "duplicate id": ("area", "id: EPP-SUB-02", "id: EPP-SUB-01",
        f"{R}:14:9: requirements[1].id: 'EPP-SUB-01' is here twice (the first is at {R}:7:9)"),
    "alias of another": ("area", "EPP-SUB-00", "EPP-SUB-02", f"{R}:14:9: requirements[1].id: 'EPP-SUB-02' is"),
    "impossible range": ("area", "until: 1.0.0", "until: 0.2.0",
        f"{R}:18:12: requirements[1].until: until 0.2.0 is before since 0.3.0"),
    "unknown version": ("area", "until: 1.0.0", "until: 1.1.0", "'1.1.0' is not one of the values allowed here"),
    "effect outside": ("area", "{0.3.0: info", "{0.2.0: info, 0.3.0: info",
        f"{R}:19:14: requirements[1].effect.0.2.0: the requirement does not apply in 0.2.0 (it applies in 0.3.0, "),
    "effect missing": ("area", "0.4.0: warn, ", "", f"{R}:19:13: requirements[1].effect: no effect for 0.4.0"),
    "dangling mention": ("area", "more than EPP-SUB-01", "more than EPP-SUB-11",
        f"{R}:20:16: requirements[1].statement: there is no requirement 'EPP-SUB-11' (did you mean 'EPP-SUB-01'?)"),
    "unknown key": ("area", "observed", "observes", "unknown key 'observes' (did you mean 'observed'?)"),
    "not an id": ("area", "id: EPP-SUB-02", "id: SUB-2", f"{R}:14:9"),
    "wrong area": ("area", "area: subset", "area: model", f"{R}:1:7: area: the file is called 'subset'"),
    "dangling sentence": ("sentences", "[EPP-SUB-01]", "[EPP-SUB-03]",
        f"{S}:6:20: sentences[0].requirements[0]: there is no requirement 'EPP-SUB-03'"),
    "unknown document": ("sentences", "[0.3.0", "[0.3.1",
        f"{S}:5:17: sentences[0].documents[0]: there is no document '0.3.1' (did you mean '0.3.0'?)"),
    "neither": ("sentences", "    requirements: [EPP-SUB-01]\n", "", f"{S}:2:5: sentences[0]: a sentence has"),
    "both": ("sentences", "requirements:", "reason: x\n    requirements:", f"{S}:2:5: sentences[0]: a sentence"),
    "no file": ("head", "[subset]", "[subset, model]", "requirements/model.yaml: can't be read"),
    "no document": ("head", "name: next", "name: later", "there is no document for next"),
}  # fmt: skip
"""By mistake: the file, what is replaced in it, and the message."""


@pytest.mark.parametrize("mistake", BROKEN)
def test_broken_catalogues(tmp_path: Path, mistake: str) -> None:
    file, old, new, message = BROKEN[mistake]
    text = {"area": AREA, "sentences": SENTENCES, "head": HEAD}[file]
    assert old in text
    with pytest.raises(FileError) as caught:
        Catalogue.load(written(tmp_path, **{file: text.replace(old, new)}))
    assert message in str(caught.value)


def test_problems_of_all_files_are_reported_together(tmp_path: Path) -> None:
    area = AREA.replace("effect: fail\n", "effect: fial\n")
    sentences = SENTENCES.replace("topic", "topics")
    with pytest.raises(FileError) as caught:
        Catalogue.load(written(tmp_path, area=area, sentences=sentences))
    assert {p.file for p in caught.value.problems} >= {"requirements/subset.yaml", "requirements/sentences.yaml"}


def test_texts_are_sentences_of_ours(catalogue: Catalogue) -> None:
    def texts(requirement: Requirement) -> Iterator[str]:
        yield requirement.statement
        yield from filter(None, (requirement.observed, requirement.reading, requirement.why, requirement.untestable))

    for requirement in catalogue:
        assert not requirement.title.endswith("."), requirement.id
        for text in texts(requirement):
            assert text[-1] == ".", (requirement.id, text)
            assert "\n" not in text, requirement.id
