"""Forgeries of the report of a model server, rows of the table of `forgeries.py`."""

from __future__ import annotations

from collections.abc import Iterable

from forging.forger import Forger, Json, copied
from forging.forgeries import (
    Change,
    each_failing,
    excused,
    failing,
    forgeries,
    forgery,
    put,
)

RIGHT, WRONG = "right-server", "wrong-server"


def entries(f: Forger, row: Json | str) -> list[Json]:
    return f.episode(f.row(row) if isinstance(row, str) else row)["entries"]


def of_kind(found: Iterable[Json], kind: str, **values: object) -> list[Json]:
    wanted = {"kind": kind, **values}
    return [one for one in found if {name: one.get(name) for name in wanted} == wanted]


def asked(f: Forger, row: str) -> Json:
    return of_kind(entries(f, row), "server-asked")[0]


@forgery(RIGHT, "judgement")
def adapters_are_not_claimed(f):
    f.report["claims"].update(adapters=[], lora=False)
    for row in list(f.rows):
        if row["scenario"].startswith("lora."):
            f.excuse(row, "notApplicable", "the profile claims no dynamic LoRA")


# -- requests ----------------------------------------------------------------------------------------------------------


@forgery(RIGHT, "judgement")
def a_prompt_of_another_scenario(f):
    other = asked(f, "server.answers-with-an-object[tokens=1,words=200]")
    asked(f, "server.answers-with-an-object[tokens=1,words=8]")["prompt"] = copied(other["prompt"])


@forgery(RIGHT, "judgement")
def a_body_that_does_not_ask_for_a_stream(f):
    one = asked(f, "server.answers-with-events[tokens=1,usage=false]")
    one["body"] = one["body"].replace(', "stream": true', "")


@forgery(RIGHT, "judgement")
def the_base_model_in_place_of_the_adapter(f):
    for one in of_kind(entries(f, "lora.by-name"), "server-asked", adapter=True):
        one.update(adapter=False, model="small-model", body=one["body"].replace("tuned-a", "small-model"))


@forgery(RIGHT, "judgement")
def the_second_of_two_requests_is_left_out(f):
    row = f.row("metrics.prefix-cache")
    last = of_kind(entries(f, row), "server-asked")[-1]["exchange"]
    f.episode(row)["entries"] = [one for one in entries(f, row) if one.get("exchange") != last]


@forgery(RIGHT, "judgement")
def fewer_requests_were_there_than_had_begun(f):
    page = [one for one in of_kind(entries(f, "metrics.kv-cache"), "metrics-page") if one.get("begun")][-1]
    page["most"] = page["begun"] - 1


@forgery(RIGHT, "judgement")
def the_conversation_of_another_scenario(f):
    good = f.episode(f.row("server.answers-with-an-object[tokens=16,words=8]"))
    bad = f.episode(f.row("server.chats-with-an-object[tokens=16,words=8]"))
    bad["entries"] = copied(good["entries"])


# -- pages and load ----------------------------------------------------------------------------------------------------


@forgery(WRONG, "judgement")
def levels_of_load_were_held_for_a_moment(f):
    for row in failing(f):
        begin = of_kind(entries(f, row), "load", phase="raised")[0]["t"]
        for one in entries(f, row):
            one["t"] = min(one["t"], begin)


@forgery(RIGHT, "judgement")
def load_where_there_was_none(f):
    phase = copied(of_kind(entries(f, "metrics.queue"), "load")[0])
    last = entries(f, "metrics.page[gzip=true]")[-1]
    entries(f, "metrics.page[gzip=true]").append({**phase, "seq": last["seq"] + 1, "t": last["t"]})


def first_to_last(found: list[Json]) -> tuple[int, int, int]:
    """The places where load is first raised, last raised, and released or aborted."""
    raised = of_kind(found, "load", phase="raised")
    end = (of_kind(found, "load", phase="released") or of_kind(found, "load", phase="aborted"))[0]
    return found.index(raised[0]), found.index(raised[-1]), found.index(end)


def all_load(found: list[Json]) -> None:
    found[:] = [one for one in found if one["kind"] not in ("load", "metrics-page")]


def pages_under_load(found: list[Json]) -> None:
    begin, _, end = first_to_last(found)
    pages = [one for one in found[begin:end] if one["kind"] == "metrics-page"]
    found[:] = [one for one in found if one not in pages]


def highest_level(found: list[Json]) -> None:
    _, begin, end = first_to_last(found)
    del found[begin:end]


def cut_out(change) -> Change:
    """A change of the entries of each failing result, which passes then."""
    return each_failing(lambda f, row: (change(entries(f, row)), f.whiten(row)))


def last_left_out(row: str, kind: str, **values: object) -> Change:
    return lambda f: entries(f, row).remove(of_kind(entries(f, row), kind, **values)[-1])


def load_with(row: str, of: str, **fields: object) -> Change:
    return lambda f: of_kind(entries(f, row), "load", phase=of)[-1].update(fields)


forgeries(WRONG, "plan", {"failing results are left out": each_failing(lambda f, row: f.drop(row))})
forgeries(WRONG, "judgement", {
    "failures become passes": each_failing(lambda f, row: f.whiten(row)),
    "failures did not apply": excused("notApplicable", "the server never had to queue"),
    "the load is cut out": cut_out(all_load),
    "the pages under load are cut out": cut_out(pages_under_load),
    "the highest level of load is cut out": cut_out(highest_level),
    "less load than was allowed": put("environment.topology.concurrency", 8),
})  # fmt: skip
forgeries(RIGHT, "judgement", {
    "other names of metrics": put("claims.names.queued", ["my_queue"]),
    "a run with another seed": put("environment.seed", 8),
    "a stream without a request for it": lambda f: asked(f, "server.answers-with-events[tokens=1,usage=false]").pop(
        "stream"
    ),
    "input that was not wrong": lambda f: asked(f, "server.refuses[wrong=no-prompt]").update(wrong="unknown-model"),
    "an answer is left out": last_left_out("metrics.prefix-cache", "server-answered"),
    "a scrape is left out": last_left_out("metrics.page[gzip=true]", "metrics-page"),
    "gauges are not watched until they rest": last_left_out("metrics.queue", "load", phase="rest"),
    "pages that were read without gzip": lambda f: [
        page.update(gzip=False) for page in of_kind(entries(f, "metrics.page[gzip=true]"), "metrics-page")
    ],
    "aborted requests ended": load_with("metrics.clients-that-leave", "aborted", phase="released"),
    "shorter prompts than the profile says": load_with("metrics.kv-cache", "raised", words=8),
})  # fmt: skip
forgeries(RIGHT, None, {"another platform": put("environment.platform.machine", "abacus")})
