"""`epp-conformance selftest --mutants`: a fixed sample with exact outcomes, records of equivalents, and wrong use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.errors import UnknownNameError, UsageError
from conformance.requirements.schema import VERSIONS
from conformance.selftest.equivalents import load_equivalents, reason_for
from conformance.selftest.kept_trials import keep, noticed_before
from conformance.selftest.mutant_trial import MutantTrial
from conformance.selftest.mutants import all_mutants, by_name, sample
from conformance.selftest.mutants_page import mutants_page
from conformance.selftest.survey import Survey, survey
from conformance.strict_yaml import FileError

MUTANTS = all_mutants()
RECORDED = load_equivalents(MUTANTS)

SAMPLE = [
    ("inside_subset", "always", "request.subset is None", "if True else", "failed", "EPP-SUB-"),
    ("Conversation.destination", "stale", "','.join", "_stale", "failed", "EPP-DEST-05"),
    ("Conversation.steer", "one-path", "self.destination_header", "self.connection > 1", "failed", "EPP-DEST-01"),
    ("Conversation.destination_metadata", "delete", "fields[DESTINATION]", "pass", "failed", "ENV-14"),
    ("set_header", "field", "raw_value", "option.header.value", "failed", "ENV-11"),
    ("Report.attach", "never", "if actions", "if False", "warned", "RAR-OUT-"),
    ("running", "element", "pool, accounting", "= (Pool(), Accounting())", "not started", "ValueError"),
]
"""Function, operator, what is changed to what; and what must come of it."""


def the(function: str, operator: str, before: str, after: str) -> str:
    """The name of the mutant that does this."""
    found = [
        one
        for one in MUTANTS
        if (one.function, one.operator) == (function, operator)
        and before in one.before.replace('"', "'")
        and after in one.after
    ]
    assert len(found) == 1, [(one.before, one.after) for one in found]
    return found[0].name


@pytest.mark.program
def test_a_fixed_sample_comes_out_as_expected(cli) -> None:
    names = {the(*entry[:4]): entry[4:] for entry in SAMPLE}
    ran = cli("selftest", *names)
    rows = {name: (outcome.strip(), text) for outcome, name, text in re.findall(r"(?m)^(.{12})(\S+)  (.*)$", ran.out)}
    for name, (outcome, text) in names.items():
        assert rows[name][0] == outcome, ran.out
        assert text in rows[name][1], ran.out
    assert ran.code == 0, ran.out + ran.err
    assert "score 100.0%" in ran.out


def test_a_recorded_mutant_is_not_tried(cli) -> None:
    recorded = next(one for one in MUTANTS if reason_for(one, RECORDED))
    ran = cli("selftest", recorded.name)
    assert ran.code == 0, ran.out + ran.err
    assert "0 mutants" in ran.out
    assert "1 recorded" in ran.out


def test_a_mutant_whose_statement_is_never_reached_is_not_tried() -> None:
    unreached = next(one for one in MUTANTS if one.statement)
    surveyed = survey([unreached], (), lambda *_: None, reach=dict.fromkeys(VERSIONS, frozenset()))
    assert surveyed.unreached == (unreached,)
    assert surveyed.trials == {}
    assert surveyed.score == 1


def test_mutants_noticed_before_are_not_tried_again(tmp_path) -> None:
    noticed, survivor = sample(MUTANTS, 2, 3)
    path = tmp_path / "trials"
    assert noticed_before(path) == {}
    keep(path, MutantTrial(name=noticed.name, outcome="failed", version="1.0.0", requirement="ENV-16"))
    keep(path, MutantTrial(name=survivor.name, outcome="survived", version="1.0.0"))
    before = noticed_before(path)
    assert set(before) == {noticed.name}
    surveyed = survey([noticed], (), lambda *_: pytest.fail("it was tried"), before=before)
    assert surveyed.trials == before


def test_a_file_of_other_lines_is_not_resumed(cli, tmp_path) -> None:
    path = tmp_path / "trials"
    path.write_text("{}\n")
    ran = cli("selftest", "--mutants", "1", "--seed", "1", "--resume", path)
    assert ran.code == 2
    assert f"{path}:1: no trial of a mutant" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mutants", "0"], "--mutants"),
        (["--mutants", "many"], "--mutants"),
        (["--mutants", "1000000", "--seed", "1"], f"there are only {len(MUTANTS)} mutants"),
        (["--mutants", "1", "--seed", "-1"], "--seed"),
        (["--mutants", "1", "--seed", "x"], "--seed"),
        (["--seed", "1"], "--seed is for --mutants N"),
        (["--resume", "trials"], "--resume is for --mutants N"),
        (["--mutants", "1", "--faults"], "mutants are of the reference EPP"),
        (["--mutants", "1", "--role", "data-plane"], "mutants are of the reference EPP"),
        (["--mutants", "1", "path-changed"], "names are given"),
        (["picker.Picker.pick:never:000000"], "there is no mutant 'picker.Picker.pick:never:000000'"),
        (["picker.Picker.pick:never:000000", "path-changed"], "do not go together"),
    ],
)
def test_wrong_use_is_refused(cli, arguments, said) -> None:
    ran = cli("selftest", *arguments)
    assert ran.code == 2
    assert said in ran.err


def test_a_sample_is_given_by_its_seed_and_part_of_a_larger_one() -> None:
    assert sample(MUTANTS, 20, 7) == sample(tuple(reversed(MUTANTS)), 50, 7)[:20]
    assert sample(MUTANTS, 20, 7) != sample(MUTANTS, 20, 8)
    with pytest.raises(UsageError, match="there are only"):
        sample(MUTANTS, len(MUTANTS) + 1, 7)


def test_names_find_their_mutants() -> None:
    wanted = sample(MUTANTS, 3, 1)
    assert by_name(MUTANTS, [one.name for one in (*wanted, wanted[0])]) == wanted
    with pytest.raises(UnknownNameError, match="there is no mutant 'x:y:z'"):
        by_name(MUTANTS, ["x:y:z"])


@pytest.mark.parametrize(
    ("outcome", "silent", "again"),
    [("failed", False, False), ("failed", True, True), ("incomplete", False, True), ("survived", False, False)],
)
def test_outcomes_that_a_busy_machine_may_cause_are_tried_again(outcome, silent, again) -> None:
    trial = MutantTrial(name="a:b:c", outcome=outcome, version="1.0.0", text="no answer", silent=silent)
    assert bool(trial.trouble) is again
    assert trial.noticed is (outcome == "failed")


# -- the record --------------------------------------------------------------------------------------------------------


def test_each_entry_of_the_record_is_about_a_mutant_and_says_why() -> None:
    assert RECORDED
    for entry in RECORDED:
        assert any(entry.matches(one) for one in MUTANTS)
        assert len(entry.reason.split()) > 3


def record(folder: Path, **keys: str) -> Path:
    path = folder / "equivalents.yaml"
    path.write_text("equivalents:\n  - " + "\n    ".join(f"{key}: '{value}'" for key, value in keys.items()))
    return path


def test_an_entry_that_matches_nothing_is_an_error_at_its_line(tmp_path) -> None:
    reason = "It is not there any more, so nothing is broken."
    path = record(tmp_path, module="reference_epp.picker", function="Picker.gone", reason=reason)
    with pytest.raises(FileError, match=r"equivalents.yaml:2:5: .*no mutant of reference_epp.picker Picker.gone"):
        load_equivalents(MUTANTS, path)


@pytest.mark.parametrize(
    "wrong", [{"reason": "short"}, {"operater": "never", "reason": "It is misspelt, and so wrong."}]
)
def test_a_wrong_record_is_an_error(tmp_path, wrong) -> None:
    with pytest.raises(FileError, match=r"equivalents.yaml:\d"):
        load_equivalents(MUTANTS, record(tmp_path, module="reference_epp.picker", function="Picker.pick", **wrong))


@pytest.mark.parametrize("key", ["module", "function", "operator", "before", "after"])
def test_an_entry_matches_only_if_all_its_keys_match(tmp_path, key) -> None:
    mutant = MUTANTS[0]
    keys = {
        name: getattr(mutant, name).replace("'", "''") for name in ("module", "function", "operator", "before", "after")
    }
    (entry,) = load_equivalents(MUTANTS, record(tmp_path, **keys, reason="An example, with all keys that there are."))
    assert entry.matches(mutant)
    assert not entry.model_copy(update={key: "another"}).matches(mutant)


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_counts_by_operator_and_shows_survivors() -> None:
    noticed, survivor, recorded, unreached = sample(MUTANTS, 4, 3)
    surveyed = Survey(
        chosen=(noticed, survivor, recorded, unreached),
        unreached=(unreached,),
        recorded={recorded.name: "It is equal."},
        trials={
            noticed.name: MutantTrial(name=noticed.name, outcome="failed", version="1.0.0", requirement="ENV-16"),
            survivor.name: MutantTrial(name=survivor.name, outcome="survived", version="1.0.0"),
        },
    )
    page = mutants_page(surveyed, "make mutants MUTANTS=4 SEED=3", 3)
    assert "**50.0%** of 2 were noticed" in page
    assert "| all | 4 | 1 | 0 | 0 | 1 | 1 | 1 |" in page
    assert survivor.diff() in page
    assert noticed.diff() not in page
    assert f"- `{unreached.module}.{unreached.function}`: 1" in page
    assert "make mutants MUTANTS=4 SEED=3" in page
