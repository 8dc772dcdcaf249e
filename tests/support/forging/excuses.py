"""Forgeries that excuse a target: what spoke against it is left out, and something in the log says why it is not there.

Each is judged again by the suite's own judges, so that every result follows from the evidence that was made up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from forging.forger import Forger, Json

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


def the_exchange_was_a_poll(f: Forger) -> None:
    for one in opened(f, failing(f)):
        one["note"] = {"settling": True}


def the_client_went_away(f: Forger) -> None:
    instead(f, failing(f), kind="client-aborted", point="request-body")


def the_exchange_has_no_end(f: Forger) -> None:
    instead(f, failing(f))


def the_epp_said_nothing(f: Forger) -> None:
    instead(f, failing(f), "client-response")


def the_epp_ended_a_stream_that_was_not_opened(f: Forger) -> None:
    _at_once(f, stream="", author="epp", how="status", status=0)


def the_epp_ended_a_stream_on_which_it_was_told_nothing(f: Forger) -> None:
    _at_once(f, stream="s", author="epp", how="status", status=0)


def _at_once(f: Forger, **event: object) -> None:
    """Streams ended before anything was sent on them."""
    row = failing(f)
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


def the_length_of_the_body_was_not_told(f: Forger) -> None:
    _refused(f, 411, unannounced=True)


def the_request_was_of_another_version_of_http(f: Forger) -> None:
    _refused(f, 505, written="http-1.0")


def _refused(f: Forger, status: int, **note: object) -> None:
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


def a_wait_ran_out_instead(f: Forger) -> None:
    instead(f, failing(f), kind="wait", what="rest of the request", outcome="expired", seconds=10.0)


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


def it_was_a_real_envoy(f: Forger) -> None:
    """What is asked only of those that our own data plane carries is not asked."""
    f.report["environment"]["topology"]["dataPlane"] = "envoy"


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


def the_change_was_over_later(f: Forger) -> None:
    _over_later(f, "pool")


def the_epps_were_down_longer(f: Forger) -> None:
    _over_later(f, "epp-conduct")


def _over_later(f: Forger, kind: str) -> None:
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


def another_pool_was_behind_it(f: Forger) -> None:
    for row in f.rows:
        if row["evidence"]:
            first = f.episode(row)["context"]["gateway"]["backends"][0]
            f.episode(row)["context"]["gateway"]["backends"] = [first, {**first, "epp": "second"}]


def fewer_endpoints_were_in_the_pool(f: Forger) -> None:
    for row in f.rows:
        if row["evidence"]:
            first = f.episode(row)["context"]["gateway"]["backends"][0]
            first["endpoints"] = first["endpoints"][:1]


def no_subset_hint_was_asked_for(f: Forger) -> None:
    for one in opened(f, failing(f)):
        one["note"] = {}


def a_pod_had_another_endpoint_too(f: Forger) -> None:
    for row in f.rows:
        for one in f.episode(row)["entries"] if row["evidence"] else ():
            for fact in one["pods"][:1] if one["kind"] == "pool" else ():
                fact["endpoints"].append("127.0.0.9:8000")


EXCUSES: dict[Callable[[Forger], None], str] = {
    the_exchange_was_a_poll: "bad-epp",
    the_client_went_away: "bad-epp",
    the_exchange_has_no_end: "bad-epp",
    the_epp_said_nothing: "bad-epp",
    the_epp_ended_a_stream_that_was_not_opened: "bad-epp",
    the_epp_ended_a_stream_on_which_it_was_told_nothing: "bad-epp",
    the_messages_were_not_kept: "bad-epp",
    the_suite_stopped_the_target: "bad-epp",
    a_wait_ran_out_instead: "bad-epp",
    the_data_plane_left_first: "bad-epp",
    a_scenario_was_skipped: "bad-epp",
    a_request_was_skipped: "bad-gateway",
    it_was_a_real_envoy: "bad-epp",
    no_metrics_for_a_moment: "bad-epp",
    the_change_was_over_later: "epp",
    the_epps_were_down_longer: "gateway",
    another_pool_was_behind_it: "bad-gateway",
    fewer_endpoints_were_in_the_pool: "bad-gateway",
    no_subset_hint_was_asked_for: "hintless-gateway",
    a_pod_had_another_endpoint_too: "epp",
    no_pod_was_ever_full: "epp",
    every_epp_was_down: "bad-gateway",
    the_length_of_the_body_was_not_told: "bad-gateway",
    the_request_was_of_another_version_of_http: "bad-gateway",
}
"""Each with the report that it is done to."""
