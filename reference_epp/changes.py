"""Changes of an EPP's parts, of which deviations are made: one part with some of its methods replaced.

A function that replaces a method is called with the method that it replaces, bound, before `self`:
`changed(Picker, eligible=lambda up, picker, request: up(request)[:64])`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any, TypeVar, cast

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.conversation import Conversation
from reference_epp.epp import Close
from reference_epp.picker import Picker, Refused
from reference_epp.service import INTERNAL

T = TypeVar("T")
Act = Callable[..., Any]

_MODULES = ("reference_epp.faults", "reference_epp.variants", __name__)


def changed(part: type[T], **own: Any) -> type[T]:
    """`part` with other methods, which are functions as above, and other attributes."""
    made = type(part.__name__, (part,), {name: one for name, one in own.items() if not isinstance(one, FunctionType)})
    for name, act in own.items():
        if isinstance(act, FunctionType):
            setattr(made, name, _method(made, name, act))
    return cast("type[T]", made)


def _method(cls: type, name: str, act: Act) -> Act:
    @functools.wraps(act)
    def method(self: Any, *given: Any, **named: Any) -> Any:
        return act(getattr(super(cls, self), name), self, *given, **named)

    return method


def deviating(cls: type) -> tuple[type, frozenset[str]]:
    """The part of the correct EPP that `cls` changes, and the names that it defines."""
    own = [one for one in cls.__mro__ if one.__module__.startswith(_MODULES)]
    part = next(one for one in cls.__mro__ if one not in own)
    names = {name for one in own for name in vars(one) if name == "__init__" or not name.startswith("__")}
    return part, frozenset(names)


def limited(cls: type, when: Callable[[Any], object]) -> type:
    """`cls` where `when(self)` is true, and the part that it changes elsewhere."""
    part, names = deviating(cls)

    def either(name: str) -> Act:
        ours, correct = getattr(cls, name), getattr(part, name)
        return lambda self, *given, **named: (ours if when(self) else correct)(self, *given, **named)

    methods = [name for name in names if callable(getattr(part, name, None)) and name != "__init__"]
    return type(cls.__name__, (cls,), {name: either(name) for name in methods})


# -- what a request is, for conditions


def path(conversation: Any) -> bytes:
    """The request's path without its query."""
    return cast("bytes", conversation.headers.get(":path", b"").partition(b"?")[0])


def method(conversation: Any) -> bytes:
    """The request's method."""
    return cast("bytes", conversation.headers.get(":method", b""))


def bodyless(conversation: Any) -> bool:
    """Whether the request, which is being decided, ended without a body."""
    return conversation._request_ended and not conversation.body  # noqa: SLF001  # of the same program


def header(message: Any, name: str) -> bytes:
    """The first value of a header in a message of headers, empty if it is absent."""
    found = (one.raw_value or one.value.encode() for one in message.headers.headers if one.key == name)
    return next(found, b"")


def events(message: Any) -> bool:
    """Whether these headers are those of an event stream."""
    return header(message, "content-type").lower().startswith(b"text/event-stream")


def parsed(body: bytes) -> Any:
    """The JSON value of a body, None for anything else."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def json_object(body: bytes) -> dict[str, Any]:
    """The members of a body that is a JSON object; none for any other."""
    value = parsed(body)
    return value if isinstance(value, dict) else {}


def rewritten(body: bytes, change: Act = lambda value: value, **options: Any) -> bytes:
    """The JSON `body` with `change` applied if it is an object; other bodies unchanged."""
    try:
        value = json.loads(body, **options)
        return json.dumps(change(value) if isinstance(value, dict) else value).encode()
    except (ValueError, RecursionError):
        return body


# -- kinds of changes


def nothing(*_: Any, **__: Any) -> tuple[()]:
    """Does nothing, and answers nothing."""
    return ()


def closing(*_: Any, **__: Any) -> list[Close]:
    """Ends the stream with a gRPC error."""
    return [Close(INTERNAL, "not supported")]


def refusing(code: int, when: Callable[[Any, bytes], object]) -> type[Conversation]:
    """Refuses requests for which `when(conversation, body)` is true."""
    refusal = Refused(code, "refused")
    return changed(Conversation, choose=lambda up, c, body: refusal if when(c, body) else up(body))


def eligible(change: Act) -> type[Picker]:
    """Takes `change(picker, request, found)` for the eligible endpoints; `found` are the right ones."""
    return changed(Picker, eligible=lambda up, picker, request: change(picker, request, up(request)))


def destination(change: Act) -> type[Conversation]:
    """Writes the destination as `change(conversation, text, decision)` says."""
    return changed(Conversation, destination=lambda up, c, decision: change(c, up(decision), decision))


def setting(
    what: Callable[..., Mapping[str, bytes]], base: type[Conversation] = Conversation, *, before: bool = False
) -> type[Conversation]:
    """Sets the headers `what(conversation, decision)` of the request, after the destination or before it."""

    def act(up: Act, c: Any, common: Any, decision: Any) -> None:
        if not before:
            up(common, decision)
        for name, value in what(c, decision).items():
            answers.set_header(common.header_mutation, name, value)
        if before:
            up(common, decision)

    return changed(base, destination_header=act)


def removing(names: Callable[[Any], Iterable[str]]) -> type[Conversation]:
    """Removes the headers `names(conversation)` of the request."""

    def act(up: Act, c: Any, common: Any, decision: Any) -> None:
        up(common, decision)
        common.header_mutation.remove_headers.extend(names(c))

    return changed(Conversation, destination_header=act)


def adding_metadata(change: Act) -> type[Conversation]:
    """Calls `change(conversation, fields, decision)` with the metadata of the destination's namespace."""

    def act(up: Act, c: Any, metadata: Any, decision: Any) -> None:
        up(metadata, decision)
        change(c, namespace(c, metadata), decision)

    return changed(Conversation, destination_metadata=act)


def namespace(conversation: Any, metadata: Any) -> Any:
    """The fields of the destination's namespace in the metadata of an answer."""
    return metadata.fields[conversation.epp.metadata_namespace].struct_value.fields


def giving_back(change: Callable[[bytes], bytes], side: answers.Direction = "request") -> type[Conversation]:
    """Gives back other bytes than those of the body."""

    def act(up: Act, _: Any, direction: str, body: bytes, *, end_of_stream: bool) -> Any:
        return up(direction, change(body) if direction == side else body, end_of_stream=end_of_stream)

    return changed(Conversation, stream=act)


def cutting(limit: int) -> type[Conversation]:
    """Cuts bodies into pieces of another size."""

    def act(_: Act, __: Any, direction: Any, body: bytes, *, end_of_stream: bool) -> Any:
        parts = list(answers.pieces(body, limit)) or ([b""] if end_of_stream else [])
        return [
            answers.streamed_answer(direction, part, end_of_stream=end_of_stream and index == len(parts))
            for index, part in enumerate(parts, 1)
        ]

    return changed(Conversation, stream=act)


def response_headers(change: Act, base: type[Conversation] = Conversation) -> type[Conversation]:
    """Answers the response's headers with what `change(conversation, headers, mutation)` does to them."""

    def act(_: Act, c: Any, headers: Any) -> list[ProcessingResponse]:
        answer, common = answers.headers_answer("response")
        change(c, headers, common.header_mutation)
        return [answer]

    return changed(base, on_response_headers=act)


def emitting(change: Act, base: type[Conversation] = Conversation) -> type[Conversation]:
    """Calls `change(conversation, answer)` for each answer before it leaves."""

    def act(up: Act, c: Any, actions: list[Any]) -> Any:
        for action in actions:
            if isinstance(action, ProcessingResponse):
                change(c, action)
        return up(actions)

    return changed(base, emit=act)


def answering_refusals(change: Act, base: type[Conversation] = Conversation) -> type[Conversation]:
    """Calls `change(conversation, answer, refusal)` for the answer of each refusal."""

    def act(up: Act, c: Any, refusal: Refused) -> list[Any]:
        actions = list(up(refusal))
        if isinstance(actions[0], ProcessingResponse):
            change(c, actions[0], refusal)
        return actions

    return changed(base, refuse=act)
