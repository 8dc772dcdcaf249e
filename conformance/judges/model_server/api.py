"""Inference API Protocol (MS-API-01, -02): completions and chat completions as OpenAI has them, the core of it.

Fields that OpenAI does not have are free, and so is what a parameter beyond the core does. Errors may be in any of the
three shapes that servers of the field have. A server that serves a model it does not know from its base model is
within the text, which says nothing of models.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.judges.episode_view import EpisodeView
from conformance.judges.registry import judge_of_episode
from conformance.judges.ruling import Nature, Ruling, passed, recorded, violation
from conformance.judges.server_view import ServerExchange
from conformance.reading.server_answer import ServerAnswer, error_message
from conformance.verdict import Verdict

COMPLETIONS, CHAT = "MS-API-01", "MS-API-02"
REQUIREMENT = {"completions": COMPLETIONS, "models": COMPLETIONS, "chat": CHAT}
OVERLOADED = (429, 503)


@judge_of_episode(COMPLETIONS, CHAT, role="model-server")
def answers(episode: EpisodeView) -> Iterator[Ruling]:
    """Every request of a scenario, but those for an adapter."""
    for one in episode.server.exchanges:
        cut_off = one.answer is not None and one.answer.event.outcome != "response" and episode.exit is not None
        if not one.asked.adapter and one.answer is not None and not cut_off:
            yield from _judge(one, one.answer, REQUIREMENT[one.asked.api])


@judge_of_episode(COMPLETIONS, CHAT, role="model-server")
def process(episode: EpisodeView) -> Iterator[Ruling]:
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


def _judge(one: ServerExchange, answer: ServerAnswer, requirement: str) -> Iterator[Ruling]:
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
        yield one.fail(requirement, problem[0], problem[1]) if problem else passed(requirement)


def _refused(one: ServerExchange, answer: ServerAnswer, requirement: str) -> Ruling:
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


def _models(one: ServerExchange, answer: ServerAnswer, requirement: str) -> Ruling:
    """Listing models is no part of the two APIs, but clients expect it beside them."""
    body = answer.json
    cards = body.get("data") if isinstance(body, dict) else None
    right = answer.event.status == 200 and isinstance(cards, list) and all(_has(card, id=str) for card in cards)
    if right:
        return passed(requirement)
    expected = '{"object": "list", "data": [{"id": …}, …]}'
    return one.fail(requirement, expected, answer.describe(), verdict=Verdict.WARN)


# -- one object --------------------------------------------------------------------------------------------------------

Wrong = tuple[str, str]
"""What is expected, and what there is."""


def _whole(one: ServerExchange, answer: ServerAnswer) -> Wrong | None:
    body = answer.json
    if not isinstance(body, dict):
        return "a JSON object", answer.describe()
    if answer.content_type != "application/json":
        return "content type application/json", answer.describe()
    kind = "chat.completion" if one.asked.api == "chat" else "text_completion"
    return _shell(body, kind) or _choices(body, one, streamed=False) or _usage(body.get("usage"), one)


def _shell(body: dict[str, Any], kind: str) -> Wrong | None:
    for name, wanted in (("id", str), ("object", str), ("created", int), ("model", str), ("choices", list)):
        if not isinstance(body.get(name), wanted) or isinstance(body.get(name), bool):
            return f"`{name}`, {_A[wanted]}", _is(name, body)
    return None if body["object"] == kind else (f"`object` {kind!r}", f"{body['object']!r}")


def _choices(body: dict[str, Any], one: ServerExchange, *, streamed: bool) -> Wrong | None:
    choices = body["choices"]
    if not choices and not streamed:
        return "a choice", "`choices` is empty"
    for choice in choices:
        if not _has(choice, index=int):
            return "choices with an `index`", "one has none"
        reason = choice.get("finish_reason")
        if not (isinstance(reason, str) or (streamed and reason is None)):
            return "choices with a `finish_reason`", _is("finish_reason", choice)
        holder, name = (choice.get("delta" if streamed else "message"), "content") if one.asked.api == "chat" else (
            choice, "text",
        )  # fmt: skip
        if not isinstance(holder, dict):
            return f"choices with a `{'delta' if streamed else 'message'}`", "one has none"
        text = holder.get(name)
        reasoned = holder.get("reasoning_content") or holder.get("reasoning") or holder.get("tool_calls")
        optional = one.asked.api == "chat" and (streamed or bool(reasoned))
        if not (isinstance(text, str) or (text is None and optional)):
            return f"choices with `{name}`, a text", _is(name, holder)
    return None


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
        return "data: [DONE] as the last event", f"{len(events.data)} events, the last another"
    chunks = events.chunks
    if not all(isinstance(chunk, dict) for chunk in chunks):
        return "a JSON object in each event", "one is none"
    if any(error_message(chunk) is not None for chunk in chunks):
        return "a stream without errors", "an event is an error"
    kind = "chat.completion.chunk" if one.asked.api == "chat" else "text_completion"
    for chunk in chunks:
        if problem := _shell(chunk, kind) or _choices(chunk, one, streamed=True):
            return problem
    ends = [choice.get("finish_reason") for chunk in chunks for choice in chunk["choices"]]
    if not any(ends):
        return "a chunk with a `finish_reason`", "no chunk has one"
    if one.asked.include_usage:
        last = chunks[-1]
        if last["choices"] or not isinstance(last.get("usage"), dict):
            return "a last chunk with `usage` and no choices", "the last chunk is another"
        return _usage(last["usage"], one)
    return None


_A = {str: "a text", int: "a whole number", list: "a list"}


def _has(value: Any, **fields: type) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in fields.items())


def _is(name: str, body: dict[str, Any]) -> str:
    return f"it is a {type(body[name]).__name__}" if name in body else "it has none"
