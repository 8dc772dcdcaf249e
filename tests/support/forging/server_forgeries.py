"""What a vendor might do to the report of a model server, and the step of `verify` that catches it.

`None` as the step: it can't be seen offline, and `verify` says so in its notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forging.forger import Forger, Json, copied

RIGHT, WRONG = "right-server", "wrong-server"

FORGERIES: dict[str, tuple[str, str | None, Callable[[Forger], object]]] = {}
"""By name: the report that it is done to, the step that catches it, and what is done."""


def forgery(of: str, step: str | None = "judgement") -> Callable[[Callable[[Forger], object]], Callable[..., object]]:
    """Add the function below to the table."""

    def add(change: Callable[[Forger], object]) -> Callable[[Forger], object]:
        FORGERIES[change.__name__.replace("_", " ")] = (of, step, change)
        return change

    return add


def failing(f: Forger) -> list[Json]:
    return [row for row in f.rows if any(one["verdict"] == "fail" for one in row["findings"])]


def entries(f: Forger, row: Json | str) -> list[Json]:
    return f.episode(f.row(row) if isinstance(row, str) else row)["entries"]


def of_kind(found: Iterable[Json], kind: str, **values: object) -> list[Json]:
    wanted = {"kind": kind, **values}
    return [one for one in found if {name: one.get(name) for name in wanted} == wanted]


def asked(f: Forger, row: str) -> Json:
    return of_kind(entries(f, row), "server-asked")[0]


# -- results -----------------------------------------------------------------------------------------------------------


@forgery(WRONG)
def failures_become_passes(f):
    for row in failing(f):
        f.whiten(row)


@forgery(WRONG, step="plan")
def failing_results_are_left_out(f):
    for row in failing(f):
        f.drop(row)


@forgery(WRONG)
def failures_did_not_apply(f):
    for row in failing(f):
        f.excuse(row, "notApplicable", "the server never had to queue")


@forgery(RIGHT)
def adapters_are_not_claimed_any_more(f):
    f.report["claims"].update(adapters=[], lora=False)
    for row in list(f.rows):
        if row["scenario"].startswith("lora."):
            f.excuse(row, "notApplicable", "the profile claims no dynamic LoRA")


@forgery(RIGHT)
def other_names_of_metrics_than_those_that_were_looked_for(f):
    f.report["claims"]["names"]["queued"] = ["my_queue"]


# -- requests ----------------------------------------------------------------------------------------------------------


@forgery(RIGHT)
def a_run_with_another_seed(f):
    f.report["environment"]["seed"] = 8


@forgery(RIGHT)
def a_prompt_of_another_scenario(f):
    other = asked(f, "server.answers-with-an-object[tokens=1,words=200]")
    asked(f, "server.answers-with-an-object[tokens=1,words=8]")["prompt"] = copied(other["prompt"])


@forgery(RIGHT)
def a_stream_that_was_not_asked_for(f):
    asked(f, "server.answers-with-events[tokens=1,usage=false]").pop("stream")


@forgery(RIGHT)
def a_body_that_does_not_ask_for_a_stream(f):
    one = asked(f, "server.answers-with-events[tokens=1,usage=false]")
    one["body"] = one["body"].replace(', "stream": true', "")


@forgery(RIGHT)
def input_that_was_not_wrong(f):
    asked(f, "server.refuses[wrong=no-prompt]")["wrong"] = "unknown-model"


@forgery(RIGHT)
def the_base_model_in_place_of_the_adapter(f):
    for one in of_kind(entries(f, "lora.by-name"), "server-asked", adapter=True):
        one.update(adapter=False, model="small-model", body=one["body"].replace("tuned-a", "small-model"))


@forgery(RIGHT)
def the_second_of_two_requests_is_left_out(f):
    row = f.row("metrics.prefix-cache")
    last = of_kind(entries(f, row), "server-asked")[-1]["exchange"]
    f.episode(row)["entries"] = [one for one in entries(f, row) if one.get("exchange") != last]


@forgery(RIGHT)
def an_answer_is_left_out(f):
    found = entries(f, "metrics.prefix-cache")
    found.remove(of_kind(found, "server-answered")[-1])


@forgery(RIGHT)
def fewer_requests_were_there_than_had_begun(f):
    page = [one for one in of_kind(entries(f, "metrics.kv-cache"), "metrics-page") if one.get("begun")][-1]
    page["most"] = page["begun"] - 1


@forgery(RIGHT)
def the_conversation_of_another_scenario(f):
    good = f.episode(f.row("server.answers-with-an-object[tokens=16,words=8]"))
    bad = f.episode(f.row("server.chats-with-an-object[tokens=16,words=8]"))
    bad["entries"] = copied(good["entries"])


# -- pages and load ----------------------------------------------------------------------------------------------------


@forgery(RIGHT)
def a_scrape_is_left_out(f):
    row = f.row("metrics.page[gzip=true]")
    page = of_kind(entries(f, row), "metrics-page")[-1]
    entries(f, row).remove(page)


@forgery(RIGHT)
def pages_that_were_read_without_gzip(f):
    for page in of_kind(entries(f, "metrics.page[gzip=true]"), "metrics-page"):
        page["gzip"] = False


@forgery(WRONG)
def the_load_is_cut_out(f):
    for row in failing(f):
        found = entries(f, row)
        found[:] = [one for one in found if one["kind"] not in ("load", "metrics-page")]
        f.whiten(row)


@forgery(WRONG)
def the_pages_under_load_are_cut_out(f):
    for row in failing(f):
        found = entries(f, row)
        begin = found.index(of_kind(found, "load", phase="raised")[0])
        end = found.index((of_kind(found, "load", phase="released") or of_kind(found, "load", phase="aborted"))[0])
        found[:] = [
            one for place, one in enumerate(found) if not (begin < place < end and one["kind"] == "metrics-page")
        ]
        f.whiten(row)


@forgery(WRONG)
def the_highest_level_of_load_is_cut_out(f):
    for row in failing(f):
        found = entries(f, row)
        begin = found.index(of_kind(found, "load", phase="raised")[-1])
        end = found.index((of_kind(found, "load", phase="released") or of_kind(found, "load", phase="aborted"))[0])
        del found[begin:end]
        f.whiten(row)


@forgery(WRONG)
def less_load_than_was_allowed(f):
    f.report["environment"]["topology"]["concurrency"] = 8


@forgery(WRONG)
def levels_of_load_were_held_for_a_moment(f):
    for row in failing(f):
        begin = of_kind(entries(f, row), "load", phase="raised")[0]["t"]
        for one in entries(f, row):
            one["t"] = min(one["t"], begin)


@forgery(RIGHT)
def gauges_are_not_watched_until_they_rest(f):
    entries(f, "metrics.queue").remove(of_kind(entries(f, "metrics.queue"), "load", phase="rest")[-1])


@forgery(RIGHT)
def requests_ended_that_were_to_be_broken_off(f):
    of_kind(entries(f, "metrics.clients-that-leave"), "load", phase="aborted")[0]["phase"] = "released"


@forgery(RIGHT)
def load_where_there_was_none(f):
    phase = copied(of_kind(entries(f, "metrics.queue"), "load")[0])
    last = entries(f, "metrics.page[gzip=true]")[-1]
    entries(f, "metrics.page[gzip=true]").append({**phase, "seq": last["seq"] + 1, "t": last["t"]})


@forgery(RIGHT)
def shorter_prompts_than_the_profile_says(f):
    of_kind(entries(f, "metrics.kv-cache"), "load", phase="raised")[-1]["words"] = 8


@forgery(RIGHT, step=None)
def other_platform(f):
    f.report["environment"]["platform"]["machine"] = "abacus"
