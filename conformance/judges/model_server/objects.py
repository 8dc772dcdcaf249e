"""The objects of OpenAI's completions and chat completions, whole and in events: what is wrong with them.

What no engine of the field does is wrong; what one of them does or did, as far as clients can live with it, is odd.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

Wrong = tuple[str, str]
"""What is expected, and what there is."""

MARKS = 4
"""Tokens that an answer may begin with and that make no text: models that reason mark what follows by some."""

PLENTY = 16
"""Tokens that make a text, whatever they are: a model whose answer was cut after so many has said something."""

SPARSE = 4
"""Words to a token, at most, in a text of some length: the tokens of models are words, pieces of them, or, as those of
SuperBPE (arXiv:2503.13423), up to four words."""

MILLISECONDS = 100_000_000_000
"""A time that is later, in seconds, is in milliseconds."""

REPEATED = 6
"""Chunks, each of which begins with all of the one before and goes on, that prove that text is repeated: words may."""


def shell(body: dict[str, Any], kind: str) -> Wrong | None:
    """The members of any object, around its choices."""
    for name, wanted in (("id", str), ("object", str), ("created", int), ("model", str), ("choices", list)):
        if not has(body, **{name: wanted}):
            return f"`{name}`, {_A[wanted]}", _is(name, body)
    return None if body["object"] == kind else (f"`object` {kind!r}", f"{body['object']!r}")


def choices(body: dict[str, Any], *, chat: bool, streamed: bool) -> Wrong | None:
    """The choices of one object, each for itself."""
    if not body["choices"] and not streamed:
        return "a choice", "`choices` is empty"
    for choice in body["choices"]:
        if not has(choice, index=int):
            return "choices with an `index`", "one has none"
        if choice["index"] < 0:
            return "choices with an `index` from 0", f"{choice['index']}"
        reason = choice.get("finish_reason")
        if not (isinstance(reason, str) or (streamed and reason is None)):
            return "choices with a `finish_reason`", _is("finish_reason", choice)
        if not reason and not streamed:
            return "choices with a `finish_reason`", "it is empty"
        holder = choice.get("delta" if streamed else "message") if chat else choice
        if not isinstance(holder, dict):
            return f"choices with a `{'delta' if streamed else 'message'}`", "one has none"
        if chat and not streamed and not isinstance(holder.get("role"), str):
            return "messages with a `role`", _is("role", holder)
        name = "content" if chat else "text"
        text = holder.get(name)
        optional = chat and (streamed or _silent(body, choice, holder))
        if not (isinstance(text, str) or (text is None and optional)):
            return f"choices with `{name}`, a text", _is(name, holder)
    return None


def _silent(body: dict[str, Any], choice: dict[str, Any], message: dict[str, Any]) -> bool:
    """Whether a message of a chat need not have a content: it says something else, or has so few tokens that all may be
    marks, or its end. SGLang has null for an empty text."""
    if any(isinstance(message.get(name), str) for name in ("reasoning_content", "reasoning", "refusal")):
        return True
    usage = body.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    few = isinstance(tokens, int) and tokens <= MARKS
    empty = "content" in message or choice.get("finish_reason") == "length"
    return bool(message.get("tool_calls")) or (few and empty)


def mute(found: Sequence[dict[str, Any]], *, chat: bool, tokens: int) -> Wrong | None:
    """What is wrong with an answer, in one object or in chunks, that was cut after `tokens` and says nothing at all.

    A chat may say another thing than its content: reasons, calls of tools, whatever a server has for what was made.
    """
    cut = any(choice.get("finish_reason") == "length" for choice in _choices(found))
    if not cut or tokens < PLENTY or any(_says(choice, chat=chat) for choice in _choices(found)):
        return None
    return f"`{'content' if chat else 'text'}` of {tokens} tokens", "there is none, and `finish_reason` is 'length'"


def uncounted(found: Sequence[dict[str, Any]]) -> Wrong | None:
    """What is wrong with `completion_tokens` that are too few for the words that were made."""
    tokens = tokens_of(found)
    words = len("".join(map(_text, _choices(found))).split())
    if not tokens or words <= SPARSE * max(tokens, MARKS):
        return None
    return f"`completion_tokens` of {words} words", f"{tokens}"


def _says(choice: dict[str, Any], *, chat: bool) -> bool:
    holder = _holder(choice) if chat else choice
    return any(holder[name] for name in holder if name != "role") if chat else bool(holder.get("text"))


# -- the chunks of a stream, together ----------------------------------------------------------------------------------


def together(chunks: Sequence[dict[str, Any]]) -> Wrong | None:
    """What is wrong with chunks that are right each for itself."""
    ended: set[int] = set()
    for choice in _choices(chunks):
        if choice["index"] in ended and _text(choice):
            return "a `finish_reason` with or after the last text of a choice", "text follows it"
        if choice.get("finish_reason"):
            ended.add(choice["index"])
    if not ended:
        return "a chunk with a `finish_reason`", "no chunk has one"
    texts: dict[int, list[str]] = defaultdict(list)
    for choice in _choices(chunks):
        if text := _text(choice):
            texts[choice["index"]].append(text)
    for pieces in texts.values():
        grows = all(len(one) < len(other) and other.startswith(one) for one, other in pairwise(pieces))
        if grows and len(pieces) >= REPEATED:
            return "chunks with the text that is new", "each repeats all of the text before it"
    return None


def odd(chunks: Sequence[dict[str, Any]]) -> Wrong | None:
    """What is unlike OpenAI's streams, but seen in the field; or unlike its objects, if it is one chunk."""
    ids = {chunk["id"] for chunk in chunks}
    if "" in ids:  # Text Generation Inference
        return "an `id` that tells the answer from others", "it is empty"
    if len(ids) > 1:  # trtllm-serve, in some releases
        return "one `id` in all chunks of an answer", f"{len(ids)} in {len(chunks)} chunks"
    ends = [choice["index"] for choice in _choices(chunks) if choice.get("finish_reason")]
    if len(set(ends)) < len(ends):  # SGLang until 0.4.9
        return "one `finish_reason` of each choice", f"{len(ends)}"
    for choice in _choices(chunks):
        if (role := _holder(choice).get("role") or "assistant") != "assistant":  # vLLM, told so by --response-role
            return "the `role` 'assistant'", f"{role!r}"
    if any(chunk["created"] > MILLISECONDS for chunk in chunks):
        return "`created` in seconds", "it is in milliseconds"
    if tokens_of(chunks) == 0 and any(_text(choice) for choice in _choices(chunks)):
        return "`completion_tokens` above 0, as there is text", "0"
    return None


def early(found: Sequence[dict[str, Any]], most: int | None) -> Wrong | None:
    """What is odd about an answer that is said to be cut for its length, after fewer than `most` tokens."""
    tokens = tokens_of(found)
    if not tokens or tokens >= (most or 0) or all(one.get("finish_reason") != "length" for one in _choices(found)):
        return None
    return f"`finish_reason` 'length' after {most} tokens, as was asked for", f"after {tokens}"


def uncut(found: Sequence[dict[str, Any]], most: int | None) -> Wrong | None:
    """What is odd about an answer with text that was to have one token, and is said to have ended by itself.

    A token that ends an answer makes no text, so this answer was cut. Triton's front end says `stop` of every one.
    """
    ends = [one for one in _choices(found) if one.get("finish_reason") == "stop"]
    if most != 1 or not ends or not "".join(map(_text, _choices(found))).strip():
        return None
    return "`finish_reason` 'length' after one token, as was asked for", "'stop', although there is text"


def overcached(found: Sequence[dict[str, Any]]) -> Wrong | None:
    """What is odd about the tokens of the prompt that a cache had: they are some of its tokens."""
    usage = _usage(found)
    cached, prompt = cached_of(usage), usage.get("prompt_tokens")
    if cached is None or not isinstance(prompt, int) or 0 <= cached <= prompt:
        return None
    return f"`cached_tokens` of {prompt} tokens of the prompt", f"{cached}"


def cached_of(usage: Any) -> int | None:
    """The tokens of the prompt that a cache had, by a `usage`; None if it does not say it."""
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if isinstance(cached, int) else None


def _choices(chunks: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (choice for chunk in chunks for choice in chunk["choices"])


def tokens_of(chunks: Sequence[dict[str, Any]]) -> int | None:
    """The tokens that were made, by the last `usage`; None if that does not say it."""
    tokens = _usage(chunks).get("completion_tokens")
    return tokens if isinstance(tokens, int) else None


def _usage(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return next((usage for one in reversed(chunks) if isinstance(usage := one.get("usage"), dict)), {})


def _holder(choice: dict[str, Any]) -> dict[str, Any]:
    """What has the text of a choice: the choice itself, but for chats."""
    return next((holder for name in ("delta", "message") if isinstance(holder := choice.get(name), dict)), choice)


def _text(choice: dict[str, Any]) -> str:
    holder = _holder(choice)
    return holder.get("content") or holder.get("text") or ""


# -- members -----------------------------------------------------------------------------------------------------------

_A = {str: "a text", int: "a whole number", list: "a list"}


def has(value: Any, **fields: type) -> bool:
    """Whether a value is an object with these members, each of its type."""
    return isinstance(value, dict) and all(_of_type(value.get(name), kind) for name, kind in fields.items())


def _of_type(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # which is a number for Python alone


def _is(name: str, body: dict[str, Any]) -> str:
    return f"it is a {type(body[name]).__name__}" if name in body else "it has none"
