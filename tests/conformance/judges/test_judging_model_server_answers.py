"""Judging answers of model servers: what the chunks of a stream are together, and choices of one object."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from conformance.evidence.episode import Context, Episode
from conformance.evidence.model_server import ModelServerFacts, ServerAnswered, ServerAsked
from conformance.judges import judge
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Verdict
from ext_proc.record import Entry

CONTEXT = Context(
    version="next",
    scenario="server.answers-with-events",
    role="model-server",
    requirements=("MS-API-01", "MS-API-02"),
    model_server=ModelServerFacts(),
)


def verdict(
    body: bytes,
    content_type: bytes,
    *,
    stream: bool,
    chat: bool,
    asked: dict[str, Any],
    tokens: int | None = None,
    words: int = 8,
) -> Verdict:
    api = "chat" if chat else "completions"
    sent = json.dumps(asked).encode()
    request = ServerAsked(
        method="POST", path="/v1", api=api, stream=stream, body=sent, tokens=tokens, prompt={"words": words}
    )
    answer = ServerAnswered(status=200, headers=((b"content-type", content_type),), body=body)
    entries = (Entry(1, 1, request), Entry(2, 2, answer))
    found = judge(Episode(id="1", entries=entries), CONTEXT, Catalogue.load())
    return next(one.verdict for one in found if one.requirement == ("MS-API-02" if chat else "MS-API-01"))


def streamed(
    *pieces: tuple[str, str | None],
    ids: tuple[str, ...] = ("a",),
    chat: bool = False,
    end: str = "",
    name: str = "content",
    role: str = "assistant",
    indices: tuple[int, ...] = (0,),
    tokens: int = 16,
) -> Verdict:
    """The verdict on a stream of chunks, each a text with its finish_reason."""
    lines = []
    for number, (text, finish) in enumerate(pieces):
        inner: dict[str, Any] = {"delta": {name: text, "role": role}} if chat else {"text": text}
        chunk = {
            "id": ids[number % len(ids)], "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 1, "model": "m",
            "choices": [{"index": indices[number % len(indices)], **inner, "finish_reason": finish}],
        }  # fmt: skip
        lines.append(f"data: {json.dumps(chunk)}\n\n")
    body = ("".join(lines) + "data: [DONE]\n\n" + end).encode()
    return verdict(body, b"text/event-stream", stream=True, chat=chat, asked={"model": "m"}, tokens=tokens)


def whole(
    choices: list[dict[str, Any]],
    *,
    chat: bool = False,
    tokens: int = 4,
    name: str = "a",
    created: int = 1,
    most: int | None = None,
    words: int = 8,
    details: Any = None,
    **asked: Any,
) -> Verdict:
    """The verdict on one object with these choices, to a prompt of so many words, for `most` tokens."""
    kind = "chat.completion" if chat else "text_completion"
    usage = {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": 8 + tokens}
    usage |= {"prompt_tokens_details": details}
    body = {"id": name, "object": kind, "created": created, "model": "m", "choices": choices, "usage": usage}
    sent = json.dumps(body).encode()
    return verdict(sent, b"application/json", stream=False, chat=chat, asked=asked, tokens=most, words=words)


WORDS = [(word, None) for word in ("a", " a", " a b", " a", " c", " c", " d", " d")]
END = ("", "stop")


@pytest.mark.parametrize("chat", [False, True], ids=["completion", "chat"])
def test_a_stream_as_engines_send_it_is_right(chat) -> None:
    assert streamed(*WORDS, END, chat=chat) is Verdict.PASS
    assert streamed(*WORDS, (" e", "length"), chat=chat) is Verdict.PASS
    assert streamed(*WORDS, (" e", "length"), ("", None), chat=chat) is Verdict.PASS  # a chunk without text after it
    assert streamed(("=", None), ("==", None), ("====", None), END, chat=chat) is Verdict.PASS  # tokens may grow


@pytest.mark.parametrize("chat", [False, True], ids=["completion", "chat"])
def test_what_no_engine_streams_is_wrong(chat) -> None:
    chunk = 'data: {"choices": []}\n\n'
    assert streamed(*WORDS, END, chat=chat, end=f"{chunk}data: [DONE]\n\n") is Verdict.FAIL
    assert streamed(*WORDS, END, chat=chat, end=chunk) is Verdict.FAIL
    assert streamed(*((text, "stop") for text, _ in WORDS), chat=chat) is Verdict.FAIL
    assert streamed(*((" word" * count, None) for count in range(1, 8)), END, chat=chat) is Verdict.FAIL


@pytest.mark.parametrize("chat", [False, True], ids=["completion", "chat"])
def test_what_an_engine_streams_unlike_openai_is_warned_of(chat) -> None:
    assert streamed(*WORDS, END, chat=chat, ids=("a", "b")) is Verdict.WARN
    assert streamed(*WORDS, (" e", "length"), ("", "length"), chat=chat) is Verdict.WARN


def test_there_are_as_many_choices_as_were_asked_for() -> None:
    first, second = ({"index": number, "text": "x", "finish_reason": "stop"} for number in (0, 1))
    assert whole([first]) is Verdict.PASS
    assert whole([first, first]) is Verdict.FAIL
    assert whole([first, second]) is Verdict.FAIL
    assert whole([first, second], n=2) is Verdict.PASS
    assert whole([first, first], n=2) is Verdict.FAIL
    assert whole([second]) is Verdict.FAIL
    assert whole([second], n=2) is Verdict.PASS  # one of the two may have been left out
    assert whole([{**first, "index": -1}], n=2) is Verdict.FAIL
    assert whole([{**first, "index": False}]) is Verdict.FAIL
    assert streamed(*WORDS, END, indices=(0, 1)) is Verdict.FAIL


@pytest.mark.parametrize("chat", [False, True], ids=["completion", "chat"])
def test_an_answer_that_was_cut_after_many_tokens_says_something(chat) -> None:
    def said(text: str, finish: str = "length", tokens: int = 16, **more: Any) -> Verdict:
        inner = {"message": {"role": "assistant", "content": text, **more}} if chat else {"text": text}
        return whole([{"index": 0, **inner, "finish_reason": finish}], chat=chat, tokens=tokens)

    assert said("") is Verdict.FAIL
    assert said("x") is Verdict.PASS
    assert said("", finish="stop", tokens=0) is Verdict.PASS
    assert said("", tokens=1) is Verdict.PASS
    assert said("", thoughts="x") is (Verdict.PASS if chat else Verdict.FAIL)
    assert said("x", tokens=0) is Verdict.WARN
    silent = [("", None)] * 15
    assert streamed(*silent, ("", "length"), chat=chat) is Verdict.FAIL
    assert streamed(*silent, ("", "stop"), chat=chat) is Verdict.PASS
    assert streamed(("", "length"), chat=chat, tokens=1) is Verdict.PASS
    assert streamed(*silent, ("x", "length"), chat=chat) is Verdict.PASS


@pytest.mark.parametrize("chat", [False, True], ids=["completion", "chat"])
def test_usage_counts_what_was_asked_and_made(chat) -> None:
    def made(text: str = "x", finish: str = "stop", **more: Any) -> Verdict:
        inner = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        return whole([{"index": 0, **inner, "finish_reason": finish}], chat=chat, **more)

    assert made(words=32) is Verdict.PASS  # of 8 tokens
    assert made(words=33) is Verdict.FAIL
    assert made("a " * 64, tokens=16) is Verdict.PASS
    assert made("a " * 65, tokens=16) is Verdict.FAIL
    assert made("a " * 16, tokens=1) is Verdict.PASS  # so few tokens may be a phrase
    assert made("a " * 17, tokens=1) is Verdict.FAIL
    assert made(finish="length", tokens=15, most=16) is Verdict.WARN
    assert made(finish="length", tokens=16, most=16) is Verdict.PASS
    assert made(finish="stop", tokens=15, most=16) is Verdict.PASS
    assert made(created=1_700_000_000_000) is Verdict.WARN


@pytest.mark.parametrize("chat", [False, True])
def test_an_answer_says_why_it_ended_and_which_it_is(chat) -> None:
    inner = {"message": {"role": "assistant", "content": "a"}} if chat else {"text": "a"}
    choice = {"index": 0, **inner, "finish_reason": "stop"}
    assert whole([choice], chat=chat) is Verdict.PASS
    assert whole([{**choice, "finish_reason": ""}], chat=chat) is Verdict.FAIL
    assert whole([choice], chat=chat, name="") is Verdict.WARN
    assert streamed(("a", ""), ("b", "stop"), chat=chat) is Verdict.PASS
    assert streamed(("a", None), ("b", "stop"), chat=chat, ids=("",)) is Verdict.WARN


def test_a_chat_may_say_something_else_than_its_content() -> None:
    thought = [("x", None)] * 15
    assert streamed(*thought, ("x", "length"), chat=True, name="reasoning_content") is Verdict.PASS


def test_someone_else_who_chats_is_warned_of() -> None:
    message = {"role": "user", "content": "x"}
    assert whole([{"index": 0, "message": message, "finish_reason": "stop"}], chat=True) is Verdict.WARN
    assert streamed(*WORDS, END, chat=True, role="user") is Verdict.WARN


def test_the_message_of_a_chat_has_a_role() -> None:
    said = {"content": "x"}
    assert whole([{"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop"}], chat=True) is (
        Verdict.PASS
    )
    assert whole([{"index": 0, "message": said, "finish_reason": "stop"}], chat=True) is Verdict.FAIL


@pytest.mark.parametrize(
    ("message", "finish", "tokens", "right"),
    [
        ({"content": None}, "stop", 5, False),
        ({"content": None}, "stop", 4, True),  # which may be marks, or the end: SGLang has null for an empty text
        ({"content": None}, "length", 4, True),
        ({"content": None}, "length", 5, False),
        ({}, "stop", 4, False),
        ({"content": None, "reasoning_content": ""}, "stop", 9, True),
        ({"content": None, "reasoning": "so"}, "length", 9, True),
        ({"content": None, "reasoning": None, "tool_calls": []}, "stop", 9, False),
        ({"content": None, "tool_calls": [{}]}, "tool_calls", 9, True),
        ({"content": None, "refusal": "no"}, "stop", 9, True),
        ({"content": 7, "reasoning": "so"}, "stop", 4, False),
    ],
)
def test_a_chat_says_something(message, finish, tokens, right) -> None:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    assert (whole([choice], chat=True, tokens=tokens) is Verdict.PASS) == right


def test_a_mark_of_utf8_at_the_beginning_is_no_part_of_the_events() -> None:
    chunk = {"id": "a", "object": "text_completion", "created": 1, "model": "m"}
    data = json.dumps({**chunk, "choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]})
    body = f"\ufeffdata: {data}\n\ndata: [DONE]\n\n".encode()
    assert verdict(body, b"text/event-stream", stream=True, chat=False, asked={"model": "m"}) is Verdict.PASS


@pytest.mark.parametrize(
    ("chat", "status", "wanted"),
    [
        (True, 400, Verdict.INCONCLUSIVE),
        (False, 400, Verdict.FAIL),
        (True, 404, Verdict.FAIL),
        (False, 503, Verdict.INCONCLUSIVE),
    ],
)
def test_an_adapter_that_is_refused(chat: bool, status: int, wanted: Verdict) -> None:
    """A model without a chat template, or a server that is overloaded, says nothing of its adapters."""
    api = "chat" if chat else "completions"
    asked = ServerAsked(method="POST", path="/v1", api=api, adapter=True, model="tuned", body=b'{"model": "tuned"}')
    entries = (Entry(1, 1, asked), Entry(2, 2, ServerAnswered(status=status, body=b'{"message": "no"}')))
    facts = ModelServerFacts(adapters=("tuned",), lora=True)
    context = dataclasses.replace(CONTEXT, requirements=("MS-LORA-01",), model_server=facts)
    found = judge(Episode(id="1", entries=entries), context, Catalogue.load())
    assert next(one.verdict for one in found if one.requirement == "MS-LORA-01") is wanted


@pytest.mark.parametrize("chat", [False, True], ids=["completion", "chat"])
@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (None, Verdict.PASS),
        ({}, Verdict.PASS),
        ({"cached_tokens": None}, Verdict.PASS),
        ({"cached_tokens": 0}, Verdict.PASS),
        ({"cached_tokens": 8}, Verdict.PASS),
        ({"cached_tokens": 9}, Verdict.WARN),
        ({"cached_tokens": -1}, Verdict.WARN),
    ],
)
def test_no_more_tokens_of_a_prompt_are_cached_than_it_has(chat, details, expected) -> None:
    inner = {"message": {"role": "assistant", "content": "x"}} if chat else {"text": "x"}
    choice = {"index": 0, **inner, "finish_reason": "stop"}
    assert whole([choice], chat=chat, details=details) is expected
    assert whole([choice], chat=chat, details=details, n=2) is Verdict.PASS  # the tokens of each may be added up


MESSAGE = "the engine has no\x1b memory left"
ERROR = json.dumps({"error": {"message": MESSAGE, "type": "x", "code": 500}}).encode()


@pytest.mark.parametrize(
    ("status", "stream", "body", "asked"),
    [
        (500, False, ERROR, {}),
        (500, False, json.dumps({"detail": MESSAGE}).encode(), {}),
        (200, True, b"data: " + ERROR + b"\n\ndata: [DONE]\n\n", {}),
        (500, False, ERROR, {"wrong": "no-prompt"}),
        (500, False, ERROR, {"adapter": True, "model": "a"}),
    ],
    ids=["nested", "detail", "event of a stream", "wrong input", "adapter"],
)
def test_a_finding_has_the_servers_own_error_text(status, stream, body, asked) -> None:
    kind = b"text/event-stream" if stream else b"application/json"
    request = ServerAsked(method="POST", path="/v1", stream=stream, tokens=16, prompt={"sha256": "0"}, **asked)
    answer = ServerAnswered(status=status, headers=((b"content-type", kind),), body=body)
    episode = Episode(id="1", entries=(Entry(1, 1, request), Entry(2, 2, answer)))
    (found,) = [one for one in judge(episode, CONTEXT, Catalogue.load()) if one.verdict is Verdict.FAIL]
    assert "the engine has no\\x1b memory left" in found.actual
