"""The catalogue: complete, consistent, and strict about what its files may say."""

from __future__ import annotations

import dataclasses
import re
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


def applying(catalogue: Catalogue, prefix: str) -> dict[str, list[str]]:
    return {r.id: list(r.effects) for r in catalogue if r.id.startswith(prefix)}


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


def test_what_is_not_tested_says_why(catalogue: Catalogue) -> None:
    for requirement in catalogue:
        assert requirement.testable == (not requirement.pending and not requirement.untestable), requirement.id
        assert not (requirement.pending and requirement.untestable), requirement.id


def test_what_is_tested_has_a_scenario_or_is_judged_on_every_exchange(catalogue: Catalogue) -> None:
    named = {catalogue.get(name).id for one in load(catalogue) for name in one.scenario.requirements}
    assert [one.id for one in catalogue if one.testable and not one.universal and one.id not in named] == []


def test_versions_are_a_matrix(catalogue: Catalogue) -> None:
    every, from_subset = list(VERSIONS), list(VERSIONS[1:])
    for family in ("ENV", "EPP-TRN"):
        assert set(map(tuple, applying(catalogue, family).values())) == {tuple(every)}
    for family, versions in (
        ("EPP-MODEL", ["0.3.0", "0.4.0"]),
        ("EPP-HLTH", ["next"]),
        ("EPP-SRVD", ["1.0.0", "next"]),
    ):
        assert all(found == versions for found in applying(catalogue, family).values()), family
    assert not any("0.2.0" in found for found in applying(catalogue, "EPP-SUB").values())
    for name, versions in (
        ("EPP-ERR-01", ["0.2.0"]),
        ("EPP-ERR-02", from_subset),
        ("EPP-FB-01", ["0.3.0"]),
        ("EPP-FB-02", ["0.4.0", "1.0.0", "next"]),
        ("EPP-SUB-01", from_subset),
        ("EPP-SUB-14", ["next"]),
    ):
        assert list(catalogue.get(name).effects) == versions


def test_streaming_is_an_option_before_next(catalogue: Catalogue) -> None:
    for requirement_id in ("EPP-STRM-01", "EPP-STRM-02"):
        effects = [catalogue.effect(requirement_id, version) for version in VERSIONS]
        assert effects == ["info", "info", "info", "info", "fail"]


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


def test_what_the_documents_demand_has_a_sentence(catalogue: Catalogue) -> None:
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


def test_recordings_are_those_of_real_envoy(catalogue: Catalogue) -> None:
    known = re.compile(r"(fds|buffered|streamed)-(abort|get|post|reqtr|resptr|retry|sse|empty|deadfirst)|attrs")
    assert all(known.fullmatch(r.recording) for r in catalogue if r.recording)


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


def broken() -> Iterator[tuple[str, dict[str, str], str]]:
    def area(old: str, new: str) -> dict[str, str]:
        assert old in AREA
        return {"area": AREA.replace(old, new)}

    def sentences(old: str, new: str) -> dict[str, str]:
        assert old in SENTENCES
        return {"sentences": SENTENCES.replace(old, new)}

    yield (
        "duplicate id",
        area("id: EPP-SUB-02", "id: EPP-SUB-01"),
        (
            "requirements/subset.yaml:14:9: requirements[1].id: 'EPP-SUB-01' is here twice "
            "(the first is at requirements/subset.yaml:7:9)"
        ),
    )
    yield "alias of another", area("EPP-SUB-00", "EPP-SUB-02"), "subset.yaml:14:9: requirements[1].id: 'EPP-SUB-02' is"
    yield (
        "impossible range",
        area("until: 1.0.0", "until: 0.2.0"),
        ("subset.yaml:18:12: requirements[1].until: until 0.2.0 is before since 0.3.0"),
    )
    yield "unknown version", area("until: 1.0.0", "until: 1.1.0"), "'1.1.0' is not one of the values allowed here"
    yield (
        "effect outside",
        area("{0.3.0: info", "{0.2.0: info, 0.3.0: info"),
        (
            "subset.yaml:19:14: requirements[1].effect.0.2.0: the requirement does not apply in 0.2.0 "
            "(it applies in 0.3.0, 0.4.0, 1.0.0)"
        ),
    )
    yield "effect missing", area("0.4.0: warn, ", ""), "subset.yaml:19:13: requirements[1].effect: no effect for 0.4.0"
    yield (
        "dangling mention",
        area("more than EPP-SUB-01", "more than EPP-SUB-11"),
        (
            "subset.yaml:20:16: requirements[1].statement: there is no requirement 'EPP-SUB-11' "
            "(did you mean 'EPP-SUB-01'?)"
        ),
    )
    yield "unknown key", area("observed", "observes"), "unknown key 'observes' (did you mean 'observed'?)"
    yield "not an id", area("id: EPP-SUB-02", "id: SUB-2"), "subset.yaml:14:9"
    yield "wrong area", area("area: subset", "area: model"), "subset.yaml:1:7: area: the file is called 'subset'"
    yield (
        "dangling sentence",
        sentences("[EPP-SUB-01]", "[EPP-SUB-03]"),
        ("sentences.yaml:6:20: sentences[0].requirements[0]: there is no requirement 'EPP-SUB-03'"),
    )
    yield (
        "unknown document",
        sentences("[0.3.0", "[0.3.1"),
        ("sentences.yaml:5:17: sentences[0].documents[0]: there is no document '0.3.1' (did you mean '0.3.0'?)"),
    )
    yield (
        "neither",
        sentences("    requirements: [EPP-SUB-01]\n", ""),
        "sentences.yaml:2:5: sentences[0]: a sentence has",
    )
    yield (
        "both",
        sentences("requirements:", "reason: x\n    requirements:"),
        "sentences.yaml:2:5: sentences[0]: a sentence",
    )
    yield "no file", {"head": HEAD.replace("[subset]", "[subset, model]")}, "requirements/model.yaml: can't be read"
    yield "no document", {"head": HEAD.replace("name: next", "name: later")}, "there is no document for next"


@pytest.mark.parametrize(("files", "message"), [pytest.param(f, m, id=i) for i, f, m in broken()])
def test_broken_catalogues(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(FileError) as caught:
        Catalogue.load(written(tmp_path, **files))
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
