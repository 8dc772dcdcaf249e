"""Forgeries that excuse a target: its failures are left out of the log, and another event explains the gap.

Each is judged again by the suite's own judges, so that every result follows from the forged evidence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from conformance.report.document.model import Report
from conformance.report.verify.expected import Expected
from conformance.requirements.catalogue import Catalogue
from forging.forger import Forger, Json
from forging.forgeries import BAD_EPP, BAD_GATEWAY, EPP, GATEWAY, Change, forgeries, put
from forging.real_reports import instances_of

_AFTER = ("upstream-request", "upstream-response", "client-response", "wait", "half-closed", "stream-ended")


def failing(f: Forger) -> Json:
    """A result with a failure in an exchange."""
    return f.row(lambda row: any(one["verdict"] == "fail" and one["exchange"] for one in row["findings"]))


def failed(row: Json) -> set[str]:
    """The exchanges in which something failed."""
    return {one["exchange"] for one in row["findings"] if one["verdict"] == "fail"}


def opened(f: Forger, row: Json) -> list[Json]:
    """How the failing exchanges of a result began."""
    begun = [one for one in f.episode(row)["entries"] if one["kind"] == "exchange-opened"]
    return [one for one in begun if one["exchange"] in failed(row)]


def instead(f: Forger, row: Json, *kept: str, **event: object) -> None:
    """`event` in the place of all that the EPP said in the failing exchanges, and of what followed but for `kept`."""
    episode, entries, done = f.episode(row), [], set()
    for one in episode["entries"]:
        name = one.get("exchange")
        gone = one.get("author") == "epp" or (one["kind"] in _AFTER and one["kind"] not in kept)
        if name not in failed(row) or not gone:
            entries.append(one)
        elif event and name not in done:
            done.add(name)
            entries.append({"seq": one["seq"], "t": one["t"], "exchange": name, **event})
    episode["entries"] = entries


def noted(**note: object) -> Change:
    """Failing exchanges have another note."""
    return lambda f: [one.update(note=note) for one in opened(f, failing(f))]


def replaced(*kept: str, **event: object) -> Change:
    return lambda f: instead(f, failing(f), *kept, **event)


def ended_at_once(f: Forger, stream: str) -> None:
    """Streams ended before anything was sent on them."""
    row, event = failing(f), {"stream": stream, "author": "epp", "how": "status", "status": 0}
    instead(f, row, "client-response", kind="stream-ended", **event)
    opening = ("stream-opened",) if event["stream"] else ()
    episode, kept = f.episode(row), ("exchange-opened", "stream-ended", "client-response", *opening)
    episode["entries"] = [e for e in episode["entries"] if e.get("exchange") not in failed(row) or e["kind"] in kept]
    for one in episode["entries"]:
        if one["kind"] == "stream-opened" and one["exchange"] in failed(row):
            one["stream"] = event["stream"]
    f.drop_unused_blocks()


def the_messages_were_not_kept(f: Forger) -> None:
    row = failing(f)
    for one in f.episode(row)["entries"]:
        if one["kind"] == "message" and one["author"] == "epp" and one["exchange"] in failed(row):
            one.update(raw="", size=1000)


def the_suite_stopped_the_target(f: Forger) -> None:
    row = failing(f)
    entries = f.episode(row)["entries"]
    begun = entries.index(opened(f, row)[0])
    entry = {"kind": "process-exited", "pid": 7, "code": 0, "asked": True}
    entries.insert(begun + 1, {**entry, "t": entries[begun]["t"], "seq": 0})
    numbered(f, entries)


def no_pod_was_ever_full(f: Forger) -> None:
    for row in f.rows:
        for one in f.episode(row)["entries"] if row["evidence"] else ():
            if one["kind"] == "gauges":
                one["values"] = {**one["values"], "queue": 0, "running": 0, "kv": 0.1}


def every_epp_was_down(f: Forger) -> None:
    row = f.row(lambda row: bool(row["evidence"]) and row["verdict"] in ("pass", "fail"))
    entries = f.episode(row)["entries"]
    begun = next(number for number, one in enumerate(entries) if one["kind"] == "exchange-opened")
    entries.insert(begun, {"kind": "epp-conduct", "epp": "first", "up": False, "t": entries[begun]["t"], "seq": 0})
    numbered(f, entries)


def refused(f: Forger, status: int, **note: object) -> None:
    """The gateway takes no such requests."""
    row = failing(f)
    for one in opened(f, row):
        one["note"] = note
    episode, kept = f.episode(row), ("exchange-opened", "client-response")
    episode["entries"] = [e for e in episode["entries"] if e.get("exchange") not in failed(row) or e["kind"] in kept]
    for one in episode["entries"]:
        if one["kind"] == "client-response" and one["exchange"] in failed(row):
            one["status"] = status
    f.drop_unused_blocks()


def a_scenario_was_skipped(f: Forger) -> None:
    """The failing exchange and all after it are gone, as if the scenario had ended there."""
    row = failing(f)
    episode = f.episode(row)
    begun = episode["entries"].index(opened(f, row)[0])
    kept, last = episode["entries"][:begun], episode["entries"][begun]
    names = {one["exchange"] for one in kept if one.get("exchange")}
    expected = episode["context"].get("expectations", {})
    episode["context"]["expectations"] = {name: one for name, one in expected.items() if name in names}
    entry = {"kind": "unmet", "what": "no pod", "verdict": "skipped"}
    episode["entries"] = [*kept, {**entry, "seq": last["seq"], "t": last["t"]}]
    f.drop_unused_blocks()


def a_request_was_skipped(f: Forger) -> None:
    row = failing(f)
    entries = f.episode(row)["entries"]
    seq, t = entries[-1]["seq"], entries[-1]["t"]
    for number, name in enumerate(sorted(failed(row)), 1):
        entry = {"kind": "unmet", "exchange": name, "what": "no pod", "verdict": "skipped"}
        entries.append({**entry, "seq": seq + number, "t": t})


def the_data_plane_left_first(f: Forger) -> None:
    """It has ended its side of the stream before the EPP said anything, and has an answer for its client."""
    row = failing(f)
    entries = f.episode(row)["entries"]
    streams = {one["exchange"]: one["stream"] for one in entries if one["kind"] == "stream-opened"}
    instead(f, row, kind="half-closed", stream="", author="data-plane")
    ended: list[Json] = []
    for one in f.episode(row)["entries"]:
        ended.append(one)
        if one["kind"] == "half-closed" and not one["stream"]:
            one["stream"] = streams[one["exchange"]]
            place = {"exchange": one["exchange"], "t": one["t"], "seq": 0}
            ended.append({**place, "kind": "stream-ended", "stream": one["stream"], "author": "epp", "how": "status",
                          "status": 0})  # fmt: skip
            ended.append({**place, "kind": "client-response", "status": 200})
    f.episode(row)["entries"] = ended
    numbered(f, ended)
    f.drop_unused_blocks()


def no_metrics_for_a_moment(f: Forger) -> None:
    """While the failing exchanges were under way, no pod's load could be read."""
    row = failing(f)
    entries = f.episode(row)["entries"]
    shown = {one["pod"]: one for one in entries if one["kind"] == "gauges"}
    pods = [fact["name"] for one in entries if one["kind"] == "pool" for fact in one["pods"]]
    for begun in opened(f, row):
        end = next(one for one in entries if one["kind"] == "client-response" and one["exchange"] == begun["exchange"])
        for place, values in ((begun, {"metrics": "down"}), (end, {})):
            added = [
                {**place_of(place), "kind": "gauges", "pod": pod, "values": {**_usual(shown, pod), **values}}
                for pod in dict.fromkeys(pods)
            ]
            entries[entries.index(place) + 1 : entries.index(place) + 1] = added
    numbered(f, entries)


def place_of(entry: Json) -> Json:
    return {"seq": 0, "t": entry["t"]}


def _usual(shown: dict[str, Json], pod: str) -> Json:
    return shown[pod]["values"] if pod in shown else {}


def numbered(f: Forger, entries: list[Json]) -> None:
    """Give what was added to `entries` its place in the log, which episodes of one target share."""
    for one in (one for episode in f.episodes.values() for one in episode["entries"]):
        one["seq"] *= 1000
    for before, one in itertools.pairwise(entries):
        one["seq"] = one["seq"] or before["seq"] + 1


def over_later(f: Forger, kind: str) -> None:
    """The last change between exchanges was over only when all requests had been sent."""
    row = f.row(lambda row: bool(row["evidence"]) and bool(_changed(f.episode(row)["entries"], kind)))
    entries = f.episode(row)["entries"]
    last = _changed(entries, kind)[-1]
    entries.remove(last)
    entries.append({**last, "t": entries[-1]["t"]})
    numbered(f, entries)


def _changed(entries: list[Json], kind: str) -> list[Json]:
    begun = [
        number
        for number, one in enumerate(entries)
        if one["kind"] == "exchange-opened" and not one.get("note", {}).get("settling")
    ]
    inner = entries[begun[0] : begun[-1]] if begun else []
    return [one for one in inner if one["kind"] == kind and one.get("phase", "effective") == "effective"]


def backends(change: Callable[[list[Json]], object]) -> Change:
    """A change of the pools of a gateway in every context."""
    return lambda f: [change(f.episode(row)["context"]["gateway"]["backends"]) for row in f.rows if row["evidence"]]


def a_pod_had_another_endpoint_too(f: Forger) -> None:
    for row in f.rows:
        for one in f.episode(row)["entries"] if row["evidence"] else ():
            for fact in one["pods"][:1] if one["kind"] == "pool" else ():
                fact["endpoints"].append("127.0.0.9:8000")


def smaller(pools: list[Json]) -> None:
    pools[0]["endpoints"] = pools[0]["endpoints"][:1]


def of_kind(f: Forger, kind: str) -> list[Json]:
    return [one for row in f.rows if row["evidence"] for one in f.episode(row)["entries"] if one["kind"] == kind]


def the_target_was_started_between_two_checks(f: Forger) -> None:
    entries = f.episode(f.rows[0])["entries"]
    check = of_kind(f, "health")[2]
    entries.insert(entries.index(check), {"kind": "process-started", "pid": 7, "t": check["t"], "seq": 0})
    numbered(f, entries)


def the_target_was_not_restarted(f: Forger) -> None:
    entries = f.episode(f.rows[0])["entries"]
    entries.remove(next(one for one in entries if one["kind"] == "process-exited"))


def the_connection_was_unread_from_the_beginning(f: Forger) -> None:
    for row in f.rows:
        entries = f.episode(row)["entries"]
        unread = next(one for one in entries if one["kind"] == "unread-connection")
        begun = next(one for one in entries if one["kind"] == "exchange-opened")
        entries.remove(unread)
        entries.insert(entries.index(begun), {**unread, "t": begun["t"], "seq": 0})
        numbered(f, entries)


def a_wait_ran_out_in_one_exchange(f: Forger) -> None:
    row = failing(f)
    row["findings"] = [one for one in row["findings"] if one["verdict"] == "fail"][:1]
    instead(f, row, **RAN_OUT)


def it_was_an_envoy_without_hints(f: Forger) -> None:
    f.report["environment"]["topology"]["dataPlane"] = "envoy:envoy-ai-gateway-full-duplex"
    planned = Expected(Report.of(f.report), Catalogue.load(), instances_of("envoy")).planned
    for row in f.rows:
        if planned[row["version"], row["id"]].skip is not None:
            f.excuse(row, "notApplicable", "")


RAN_OUT = {"kind": "wait", "what": "rest of the request", "outcome": "expired", "seconds": 10.0}
SAID_NOTHING = {"the EPP said nothing": replaced("client-response")}

for reports, excuses in {
    BAD_EPP: {
        "the exchange was a poll": noted(settling=True),
        "the client went away": replaced(kind="client-aborted", point="request-body"),
        "the exchange has no end": replaced(),
        "the EPP ended a stream that was not opened": lambda f: ended_at_once(f, ""),
        "the EPP ended a stream without a message": lambda f: ended_at_once(f, "s"),
        "the messages were not kept": the_messages_were_not_kept,
        "the suite stopped the target": the_suite_stopped_the_target,
        "a wait ran out instead": replaced(**RAN_OUT),
        "the data plane left first": the_data_plane_left_first,
        "a scenario was skipped": a_scenario_was_skipped,
        "it was a real Envoy": put("environment.topology.dataPlane", "envoy"),
        "no metrics for a moment": no_metrics_for_a_moment,
    },
    f"{BAD_EPP} envoy": SAID_NOTHING,
    EPP: {
        "the change was over later": lambda f: over_later(f, "pool"),
        "a pod had another endpoint too": a_pod_had_another_endpoint_too,
        "no pod was ever full": no_pod_was_ever_full,
    },
    GATEWAY: {"the EPPs were down longer": lambda f: over_later(f, "epp-conduct")},
    BAD_GATEWAY: {
        "a request was skipped": a_request_was_skipped,
        "another pool was behind it": backends(lambda pools: pools.append({**pools[0], "epp": "second"})),
        "fewer endpoints were in the pool": backends(smaller),
        "every EPP was down": every_epp_was_down,
        "the body had no announced length": lambda f: refused(f, 411, unannounced=True),
        "the request was HTTP/1.0": lambda f: refused(f, 505, written="http-1.0"),
    },
    "hintless-gateway": {"no subset hint was asked for": noted()},
    "health": {
        "another service was asked about": lambda f: of_kind(f, "health")[2].update(service="liveness"),
        "the state of the pool was unknown": lambda f: [one.update(pool_synced=None) for one in of_kind(f, "health")],
        "the target was started between two checks": the_target_was_started_between_two_checks,
        "the target was not restarted": the_target_was_not_restarted,
    },
    "unread": {"the connection was unread from the beginning": the_connection_was_unread_from_the_beginning},
    "envoy": {
        "a wait ran out in one exchange": a_wait_ran_out_in_one_exchange,
        "it was an Envoy without hints": it_was_an_envoy_without_hints,
    },
}.items():
    forgeries(reports, "judgement", excuses, again=True)
