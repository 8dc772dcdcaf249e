"""Conversations in YAML: each step is a method of `Script` or `ScriptedExchange` by its name, with its arguments.

    steps: [exchange: {mode: BUFFERED}, request, answers: [headers: $A, echo], closed: 13]

A scalar or a list is the first argument of the method, a mapping has all of them by name. `exchange` begins an
exchange, to which the following steps belong; `{on: x1}` returns to an earlier one, `changed` gives it other `headers`,
`subset`, `served` (`...`: none) or `stream` from here on. `response_body`, `response_chunk` and `response_trailers` are
those of the response. `{repeat: 3, steps: […]}` repeats steps.

Answers are functions of `scripted.answers` in the same way: `headers`, `body`, `trailers`, `echo`, `streamed` and
`immediate`, for the response with `response_` before the name. Each also takes `metadata` (the dynamic metadata), `set`
and `remove` (its header mutation). `message` is any ProcessingResponse by its fields, bytes are sent as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from conformance.evidence.episode import PodFact
from ext_proc import record_json
from ext_proc.headers import to_struct
from ext_proc.messages import (
    HeaderMutation,
    HeaderValueOption,
    ProcessingRequest,
    ProcessingResponse,
)
from ext_proc.record import Author, Event, Headers
from scripted import answers as made
from scripted.answers import Answer, option
from scripted.script import BODY, Script, ScriptedExchange, pod

_ANSWERS: Mapping[str, Callable[..., Any]] = {
    "headers": made.headers_answer,
    "body": made.body_answer,
    "trailers": made.trailers_answer,
    "streamed": made.streamed,
    "echo": made.echo,
    "immediate": made.immediate,
}


class NotationError(ValueError):
    """A step or an answer that can't be read."""


def play(script: Script, steps: Iterable[Any]) -> Script:
    """Append the steps to `script`."""
    _Player(script).play(steps)
    return script


def pods(given: Mapping[str, Any]) -> list[PodFact]:
    """Pods by name: an endpoint, a list of them, or `{endpoints: …, ready: false, …}`."""
    found = []
    for name, one in given.items():
        facts = dict(one) if isinstance(one, Mapping) else {"endpoints": one}
        found.append(pod(name, *_listed(facts.pop("endpoints")), **facts))
    return found


class _Player:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.exchanges: dict[str, ScriptedExchange] = {}
        self.current: ScriptedExchange | None = None

    def play(self, steps: Iterable[Any]) -> None:
        for step in _flat(steps):
            if isinstance(step, Mapping) and "repeat" in step:
                for _ in range(step["repeat"]):
                    self.play(step["steps"])
            else:
                self.step(*_named(step))

    def step(self, name: str, given: Any) -> None:
        match name:
            case "exchange":
                self.current = self.script.exchange(**_arguments(ScriptedExchange.__init__, given))
                self.exchanges[self.current.name] = self.current
            case "on":
                self.current = self.exchanges[given]
            case "pool":
                facts = dict(given) if "pods" in given else {"pods": given}
                self.script.pool(*pods(facts.pop("pods")), **facts)
            case "emit":
                self.script.emit(self.event(given))
            case "answers":
                self.exchange.answers(*answers(given))
            case "changed":
                for fact, value in given.items():
                    changed = headers(value) if fact == "headers" else ... if value == "..." else value
                    setattr(self.exchange, fact if fact == "stream" else f"_{fact}", changed)
            case "say":
                self.exchange.say(**build(ProcessingRequest, given, partial=True))
            case _:
                side = {}
                owner: Any = self.script if hasattr(Script, name) else self.exchange
                if not hasattr(owner, name) and name.startswith("response_"):
                    name, side = name.removeprefix("response_"), {"side": "response"}
                if name.startswith("_") or not hasattr(owner, name):
                    raise NotationError(f"no step is called {name}")
                method = getattr(owner, name)
                arguments = _arguments(method, given)
                method(**arguments | side)

    @property
    def exchange(self) -> ScriptedExchange:
        if self.current is None:
            raise NotationError("the first step of an exchange is `exchange`")
        return self.current

    def event(self, given: Mapping[str, Any]) -> Event:
        fields = dict(given)
        kind = Event.registry[fields["kind"]]
        if self.current is not None:
            fields.setdefault("exchange", self.current.name)
            if "stream" in kind.__slots__:
                fields.setdefault("stream", self.current.stream)
        return record_json.from_json({"seq": 0, "t": 0, **fields}).event


def answers(given: Iterable[Any]) -> list[Answer]:
    """Messages of the EPP."""
    return [message for one in _flat(given) for message in _answers(one)]


def _answers(given: Any) -> Iterable[Answer]:
    if isinstance(given, bytes):
        return [given]
    if isinstance(given, Mapping) and "repeat" in given:
        return answers(given["answers"]) * given["repeat"]
    name, arguments = _named(given)
    if name == "message":
        return [build(ProcessingResponse, arguments)]
    kind = name.removeprefix("response_")
    if kind not in _ANSWERS:
        raise NotationError(f"no answer is called {name}")
    make = _ANSWERS[kind]
    fields = _arguments(make, arguments, open_end=True)
    if kind == "echo":
        fields.setdefault("body", BODY)
    if kind != name:
        fields["side"] = "response"
    metadata = None if kind == "headers" else fields.pop("metadata", None)
    _put_mutation(kind, fields)
    known = inspect.signature(make).parameters
    more = build(_OPEN[kind], {key: value for key, value in fields.items() if key not in known}, partial=True)
    message = make(**{key: value for key, value in fields.items() if key in known}, **more)
    messages = message if isinstance(message, tuple) else (message,)
    made.with_metadata(messages[0], metadata)
    return messages


def _put_mutation(kind: str, fields: dict[str, Any]) -> None:
    """`set` and `remove` become what the function of the answer takes."""
    if not fields.keys() & {"set", "remove"}:
        return
    options, remove = _options(fields.pop("set", ())), list(fields.pop("remove", ()))
    if kind == "headers":
        fields |= {"options": options, "remove": remove}
    else:
        name = "headers" if kind == "immediate" else "header_mutation"
        fields[name] = HeaderMutation(set_headers=options, remove_headers=remove)


def _options(given: Any) -> list[HeaderValueOption]:
    """Header entries: `{name: value}`, or a list of `[name, value]` and `{name: …, value: …, append_action: …}`."""
    pairs = given.items() if isinstance(given, Mapping) else given
    return [option(**one) if isinstance(one, Mapping) else option(*map(_text, one)) for one in pairs]


def _text(value: Any) -> Any:
    return value if isinstance(value, bytes) else str(value)


_OPEN: Mapping[str, Any] = {
    "headers": ProcessingResponse,
    "body": made.CommonResponse,
    "immediate": made.ImmediateResponse,
    "trailers": made.TrailersResponse,
    "streamed": made.CommonResponse,
    "echo": made.CommonResponse,
}
"""The message whose fields the further arguments of a function are."""


def build(cls: Any, given: Mapping[str, Any], *, partial: bool = False) -> Any:
    """A message by its fields: text stands for bytes, a mapping for a message or a Struct."""
    fields = {}
    for name, value in given.items():
        field = cls.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise NotationError(f"{cls.DESCRIPTOR.name} has no field {name}")
        fields[name] = _field(field, value)
    return fields if partial else cls(**fields)


def _field(field: Any, value: Any) -> Any:
    kind = field.message_type
    if isinstance(value, list):
        return [_field(field, one) for one in value]
    if kind is None:
        return value.encode() if field.type == field.TYPE_BYTES and isinstance(value, str) else value
    if kind.full_name == "google.protobuf.Struct" and isinstance(value, Mapping):
        return to_struct(value)
    if kind.GetOptions().map_entry:
        return {key: _field(kind.fields_by_name["value"], one) for key, one in value.items()}
    return build(kind._concrete_class, value) if isinstance(value, Mapping) else value


# -- arguments ---------------------------------------------------------------------------------------------------------


def _named(given: Any) -> tuple[str, Any]:
    """A name and its arguments: `name`, or `{name: arguments}`."""
    if isinstance(given, str):
        return given, {}
    if isinstance(given, Mapping) and len(given) == 1:
        ((name, arguments),) = given.items()
        return str(name), arguments
    raise NotationError(f"neither a name nor one name with arguments: {given!r}")


def _arguments(function: Callable[..., Any], given: Any, *, open_end: bool = False) -> dict[str, Any]:
    parameters = {name: one for name, one in inspect.signature(function).parameters.items() if name != "self"}
    fields = given if isinstance(given, Mapping) else {next(iter(parameters)): given}
    unknown = fields.keys() - parameters.keys() - {"set", "remove", "metadata"}
    if unknown and not open_end and not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        raise NotationError(f"{function.__name__} has no {', '.join(sorted(unknown))}")
    return {
        name: _converted(str(parameters[name].annotation), value) if name in parameters else value
        for name, value in fields.items()
    }


def _converted(annotation: str, value: Any) -> Any:
    if annotation.startswith("Headers"):
        return headers(value)
    if annotation.startswith("bytes") and isinstance(value, str):
        return value.encode()
    return Author(value) if annotation == "Author" else value


def headers(given: Any) -> Headers:
    """A header list: `{name: value}`, or a list of `[name, value]`."""
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((_encoded(name), _encoded(value)) for name, value in pairs)


def _encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _flat(given: Iterable[Any]) -> Iterable[Any]:
    """The items, those of lists among them one by one: a variable may stand for several."""
    for one in given:
        if isinstance(one, list):
            yield from _flat(one)
        else:
            yield one
