"""Inference API Protocol (MS-API-01, -02): completions and chat completions as OpenAI has them, the core of it.

Fields that OpenAI does not have are free, and so is what a parameter beyond the core does. Errors may be in any of the
four shapes that servers of the field have. A server that serves a model it does not know from its base model is
within the text, which says nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from conformance.judges.episode_view import EpisodeView
from conformance.judges.findings import passed, recorded, violation
from conformance.judges.model_server.objects import (
    SPARSE,
    Wrong,
    choices,
    early,
    has,
    mute,
    odd,
    overcached,
    shell,
    together,
    tokens_of,
    uncounted,
    uncut,
)
from conformance.judges.registry import judge_of_episode
from conformance.judges.server_view import ServerExchange
from conformance.printable import plural
from conformance.reading.server_answer import DONE, ServerAnswer, error_message, json_of
from conformance.scenario.server_stimulus import SEVERAL
from conformance.verdict import Finding, Nature, Verdict

COMPLETIONS, CHAT = "MS-API-01", "MS-API-02"
REQUIREMENT = {"completions": COMPLETIONS, "models": COMPLETIONS, "chat": CHAT}
OVERLOADED = (429, 503)


@judge_of_episode(COMPLETIONS, CHAT, role="model-server")
def answers(episode: EpisodeView) -> Iterator[Finding]:
    """Every request of a scenario, but those for an adapter."""
    for one in episode.server.exchanges:
        cut_off = one.answer is not None and one.answer.event.outcome != "response" and episode.exit is not None
        if not one.asked.adapter and one.answer is not None and not cut_off:
            yield from _judge(one, one.answer, REQUIREMENT[one.asked.api])


@judge_of_episode(COMPLETIONS, CHAT, role="model-server")
def ids(episode: EpisodeView) -> Iterator[Finding]:
    """An id tells an answer from those to other requests; a server may make it of the request, or of its name."""
    of: dict[str, ServerExchange] = {}
    for one in episode.server.exchanges:
        body = one.answer.json if one.answer is not None and not one.asked.stream else None
        known = body.get("id") if isinstance(body, dict) else None
        if not (isinstance(known, str) and known) or any(name == b"x-request-id" for name, _ in one.asked.headers):
            continue
        other = of.setdefault(known, one)
        if (other.asked.body, other.asked.prompt) != (one.asked.body, one.asked.prompt):
            expected, actual = "an `id` for each answer", "an earlier one, to another request, has the same"
            yield one.fail(REQUIREMENT[one.asked.api], expected, actual, verdict=Verdict.WARN)
            return


@judge_of_episode(COMPLETIONS, CHAT, role="model-server")
def process(episode: EpisodeView) -> Iterator[Finding]:
    """The server ended by itself."""
    if episode.exit is None:
        return
    entry, exited = episode.exit
    last = next((one for one in reversed(episode.server.exchanges) if one.at < entry.seq), None)
    yield violation(
        REQUIREMENT[last.asked.api] if last is not None else COMPLETIONS,
        "the server keeps running",
        f"its process ended by itself, with code {exited.code}",
        exchange=last.exchange if last is not None else None,
        seq=entry.seq,
        nature=Nature.CRASH,
    )


def _judge(one: ServerExchange, answer: ServerAnswer, requirement: str) -> Iterator[Finding]:
    event = answer.event
    if event.outcome == "expired":
        wanted = "an answer"
        yield violation(
            requirement, wanted, event.details, exchange=one.exchange, seq=one.at, nature=Nature.HANG
        )  # fmt: skip
    elif event.outcome != "response":
        yield one.fail(requirement, "a complete HTTP response", answer.describe())
    elif one.asked.wrong:
        yield _refused(one, answer, requirement)
    elif one.asked.api == "models":
        yield _models(one, answer, requirement)
    elif event.status in OVERLOADED:
        yield one.fail(
            requirement, "HTTP 200", f"{answer.describe()}: it is overloaded", verdict=Verdict.INCONCLUSIVE
        )  # fmt: skip
    elif event.status == 400 and one.asked.api == "chat":
        actual = f"{answer.describe()}: a model without a chat template is refused so"
        hint = "Name a model that has one (--model), if this one has none."
        yield one.fail(requirement, "HTTP 200", actual, hint=hint, verdict=Verdict.INCONCLUSIVE)
    elif event.status != 200:
        yield one.fail(requirement, "HTTP 200", answer.describe())
    else:
        problem = _stream(one, answer) if one.asked.stream else _whole(one, answer)
        found = answer.events.chunks if one.asked.stream else [answer.json]
        problem = problem or _silent(found, one) or uncounted(found)
        strange = _strange(found, one) if not problem else None
        if problem:
            yield one.fail(requirement, *problem)
        elif strange:
            yield one.fail(requirement, *strange, verdict=Verdict.WARN)
        else:
            yield passed(requirement)


def _strange(found: Sequence[dict[str, Any]], one: ServerExchange) -> Wrong | None:
    """What is odd about a right answer. Of several choices, some servers add up the cached tokens of each."""
    most = one.asked.tokens
    return odd(found) or early(found, most) or uncut(found, most) or (overcached(found) if _one(one) else None)


def _refused(one: ServerExchange, answer: ServerAnswer, requirement: str) -> Finding:
    status = answer.event.status or 0
    if one.asked.wrong == "unknown-model" and status == 200:
        return recorded(requirement, "an unknown model is served from the base model", exchange=one.exchange)
    what = {
        "not-json": "a body that is no JSON",
        "no-prompt": "a request without messages" if one.asked.api == "chat" else "a request without a prompt",
        "unknown-model": "a request for an unknown model",
    }[one.asked.wrong]
    if not 400 <= status < 500:
        return one.fail(requirement, f"{what} is refused with a 4xx", answer.describe())
    if error_message(answer.json) is None:
        return one.fail(requirement, f"{what} is refused with an error as JSON", answer.describe())
    return passed(requirement)


def _models(one: ServerExchange, answer: ServerAnswer, requirement: str) -> Finding:
    """Listing models is no part of the two APIs, but clients expect it beside them."""
    body = answer.json
    cards = body.get("data") if isinstance(body, dict) else None
    right = answer.event.status == 200 and isinstance(cards, list) and all(has(card, id=str) for card in cards)
    if right:
        return passed(requirement)
    expected = '{"object": "list", "data": [{"id": …}, …]}'
    return one.fail(requirement, expected, answer.describe(), verdict=Verdict.WARN)


# -- one object --------------------------------------------------------------------------------------------------------


def _whole(one: ServerExchange, answer: ServerAnswer) -> Wrong | None:
    body = answer.json
    if not isinstance(body, dict):
        return "a JSON object", answer.describe()
    if answer.content_type != "application/json":
        return "content type application/json", answer.describe()
    kind = "chat.completion" if one.asked.api == "chat" else "text_completion"
    wrong = shell(body, kind) or choices(body, chat=one.asked.api == "chat", streamed=False) or _several(body, one)
    return wrong or _usage(body.get("usage"), one)


def _several(body: dict[str, Any], one: ServerExchange) -> Wrong | None:
    """One choice is due unless a profile asks for more, and no index comes twice."""
    indices = [choice["index"] for choice in body["choices"]]
    if len(indices) > 1 and _one(one):
        return "one choice, as `n` is 1", f"{len(indices)} choices"
    if problem := _first(indices, one):
        return problem
    if len(set(indices)) < len(indices):
        return "choices with an `index` each", f"`index` {indices}"
    return None


def _one(one: ServerExchange) -> bool:
    """Whether one choice is due, and no more."""
    asked: Any = json_of(one.asked.body)
    return isinstance(asked, dict) and not SEVERAL & asked.keys()


def _first(indices: Iterable[int], one: ServerExchange) -> Wrong | None:
    """The only choice is the first."""
    others = sorted(set(indices) - {0})
    return ("`index` 0, as `n` is 1", f"{others[0]}") if others and _one(one) else None


def _silent(found: Sequence[dict[str, Any]], one: ServerExchange) -> Wrong | None:
    """An answer has something of the tokens that it says it has, or that it was cut after."""
    told = tokens_of(found)
    return mute(found, chat=one.asked.api == "chat", tokens=(one.asked.tokens or 0) if told is None else told)


def _usage(usage: Any, one: ServerExchange) -> Wrong | None:
    if not isinstance(usage, dict):
        return "`usage`", "it has none"
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts):
        return "`usage` with whole numbers of tokens", f"{counts}"
    prompt, completion, total = (count or 0 for count in counts)
    if prompt + completion != total:
        return "`total_tokens` is the sum of the others", f"{prompt} + {completion} and {total}"
    if prompt == 0:
        return "`prompt_tokens` above 0", "0"
    words = one.asked.prompt.get("words", 0)
    if words > SPARSE * prompt:
        return f"`prompt_tokens` of {words} words", f"{prompt}"
    if one.asked.tokens is not None and completion > one.asked.tokens:
        return f"at most {one.asked.tokens} tokens, as was asked for", f"{completion}"
    return None


# -- server-sent events ------------------------------------------------------------------------------------------------


def _stream(one: ServerExchange, answer: ServerAnswer) -> Wrong | None:
    if answer.content_type != "text/event-stream":
        return "content type text/event-stream", answer.describe()
    events = answer.events
    if events.problem:
        return "whole events in UTF-8", events.problem
    if not events.done:
        more = "events follow it" if DONE in events.data else "the last another"
        return f"data: {DONE} as the last event", f"{plural(len(events.data), 'event')}, {more}"
    chunks = events.chunks
    if not all(isinstance(chunk, dict) for chunk in chunks):
        return "a JSON object in each event", "one is none"
    if any(error_message(chunk) is not None for chunk in chunks):
        return "a stream without errors", answer.describe()
    chat = one.asked.api == "chat"
    for chunk in chunks:
        kind = "chat.completion.chunk" if chat else "text_completion"
        if problem := shell(chunk, kind) or choices(chunk, chat=chat, streamed=True):
            return problem
    if problem := _first((choice["index"] for chunk in chunks for choice in chunk["choices"]), one) or together(chunks):
        return problem
    if one.asked.include_usage:
        last = chunks[-1]
        if last["choices"] or not isinstance(last.get("usage"), dict):
            return "a last chunk with `usage` and no choices", "the last chunk is another"
        return _usage(last["usage"], one)
    return None
