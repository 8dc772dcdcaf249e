"""The destination as a data plane finds it: what the EPP's answers make of the request's headers and metadata.

`header_list` applies header mutations as Envoy does (removals first; an entry overwrites, whatever its `append_action`,
unless `append` is true; names in any case; the value is `raw_value`, else `value`). `Destination` looks for the
destination: in the header where header mutations count in the body mode (ENV-13), in `dynamic_metadata` up to the
answer that releases the request (ENV-14), and where it was put besides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from conformance.reading.conversation import BUFFERED_MODES, STREAMED, Conversation
from conformance.reading.decoded_message import REQUEST, DecodedMessage, HeaderList
from conformance.reading.stream_direction import StreamDirection
from conformance.reading.stream_state import StreamState
from ext_proc.headers import value_of
from ext_proc.messages import HeaderMutation, HeaderValueOption, Value
from ext_proc.protocol import DESTINATION, FALLBACK

_PROTECTED = frozenset({":method", ":scheme", ":authority", "host"})


def protected(name: str) -> bool:
    """Whether Envoy ignores changes of this request header (its default `HeaderMutationRules`)."""
    return name in _PROTECTED or name.startswith("x-envoy-")


def sent_headers(direction: StreamDirection) -> HeaderList | None:
    """The headers that the data plane sent in this direction; None if they were not observed."""
    return direction.headers.headers if direction.headers is not None else None


def counting(direction: StreamDirection) -> tuple[DecodedMessage, ...]:
    """The answers of a direction whose header mutations take effect, in order."""
    answers = (direction.headers_answer,) if direction.headers_answer is not None else ()
    return (*answers, *direction.body_answers) if direction.mode in BUFFERED_MODES else answers


def may_count(direction: StreamDirection) -> tuple[DecodedMessage, ...]:
    """Those, and the answer to a body of STREAMED mode that came in one message: where Envoy 1.40 had the whole body
    before the headers were answered, it can still change the headers then."""
    whole = direction.mode == STREAMED and len(direction.bodies) == 1 and direction.end is not None
    late = (message for message in direction.body_answers if whole and not message.partial)
    return (*counting(direction), *late)


def header_list(direction: StreamDirection, *, append: bool = False, late: bool = False) -> HeaderList | None:
    """The headers of a direction after the answers that count; with `late`, that may count. None if not observed.

    `append`: read `append_action` as the API says, whose default is to append; Envoy does not read it.
    """
    headers, answers = sent_headers(direction), may_count(direction) if late else counting(direction)
    if headers is None or any(message.partial for message in answers):
        return None
    for message in answers:
        if message.header_mutation is not None:
            headers = apply(message.header_mutation, headers, append=append)
    return headers


def apply(mutation: HeaderMutation, headers: HeaderList, *, append: bool = False) -> HeaderList:
    """`headers` after `mutation`, as a new list. Never raises; protected headers stay as they are."""
    gone = {name.lower() for name in mutation.remove_headers}
    out = list(headers)
    if gone:
        out = [pair for pair in out if pair[0] not in gone or protected(pair[0]) or pair[0].startswith(":")]
    names = {name for name, _ in out}
    for option in mutation.set_headers:
        name, value = option.header.key.lower(), value_of(option.header)
        if protected(name):
            continue
        present = name in names
        match _mode(option) if append or option.HasField("append") else "overwrite":
            case "append" if present:
                if not name.startswith(":"):  # Envoy adds no second one of these
                    out.append((name, value))
            case "if-absent" if present:
                pass
            case "if-exists" if not present:
                pass
            case _:
                if present:
                    out = [pair for pair in out if pair[0] != name]
                out.append((name, value))
                names.add(name)
    return out


def _mode(option: HeaderValueOption) -> str:
    """What an entry asks for by the API."""
    if option.HasField("append"):
        return "append" if option.append.value else "overwrite"
    match option.append_action:
        case HeaderValueOption.ADD_IF_ABSENT:
            return "if-absent"
        case HeaderValueOption.OVERWRITE_IF_EXISTS:
            return "if-exists"
        case HeaderValueOption.APPEND_IF_EXISTS_OR_ADD:
            return "append"
        case _:
            return "overwrite"


class HeaderSetting(NamedTuple):
    """One place where an answer sets the destination header. `value` is that of whichever field holds it."""

    message: DecodedMessage
    option: HeaderValueOption
    value: str
    removed: bool = False
    """Whether the header was removed before, and not set since."""

    @property
    def conditional(self) -> bool:
        """Whether it may keep a value of the client, or set nothing (ENV-12). What is removed before can't be kept."""
        mode = _mode(self.option)
        if mode == "append" and not self.option.HasField("append"):
            return False  # the default, where nothing was asked for
        return mode == "if-exists" or (mode != "overwrite" and not self.removed)


class MetadataEntry(NamedTuple):
    """One place where an answer has the destination in `dynamic_metadata`.

    `namespace` is None for the top level. `value` is None if it is not a string; `kind` is what it is.
    """

    message: DecodedMessage
    namespace: str | None
    kind: str
    value: str | None


@dataclass(frozen=True, kw_only=True)
class Destination:
    """The destination in one conversation. `namespace` is the one in which its metadata belongs."""

    conversation: Conversation
    stream: StreamState
    namespace: str

    @property
    def release(self) -> DecodedMessage | None:
        """The answer that released the request."""
        return self.stream.request.release

    @cached_property
    def _counting(self) -> tuple[DecodedMessage, ...]:
        return counting(self.stream.request)

    @cached_property
    def observed(self) -> bool:
        """False if a message that may carry the destination was not kept whole."""
        return not any(message.partial for message in self._counting)

    # -- the header ----------------------------------------------------------------------------------------------------

    @cached_property
    def settings(self) -> tuple[HeaderSetting, ...]:
        """Every destination header set where it counts, in order."""
        found: list[HeaderSetting] = []
        removed = False
        for message in self._counting:
            own = _settings(message)
            removed = removed or _removes(message)
            found += [setting._replace(removed=removed) for setting in own]
            removed = removed and not own
        return tuple(found)

    @cached_property
    def late_settings(self) -> tuple[HeaderSetting, ...]:
        """Every destination header set on a request-phase answer where it does not count."""
        counted = {message.seq for message in self._counting}
        others = [message for message in self.stream.answers if message.side == REQUEST and message.seq not in counted]
        return tuple([found for message in others for found in _settings(message)])

    @property
    def late_removals(self) -> tuple[DecodedMessage, ...]:
        """The answers that take the header away again, where that may count."""
        late = may_count(self.stream.request)[len(self._counting) :]
        return tuple(message for message in late if _removes(message) and not _settings(message))

    @cached_property
    def client_values(self) -> tuple[str, ...]:
        """The destination headers that the client sent itself."""
        headers = sent_headers(self.stream.request) or []
        return tuple(value.decode("utf-8", "backslashreplace") for name, value in headers if name == DESTINATION)

    @cached_property
    def set_twice(self) -> tuple[HeaderSetting, HeaderSetting] | None:
        """Two different values that one answer sets. One of the client, set again before the EPP's own, is none."""
        for first, second in itertools.pairwise(self.settings):
            same = first.message.seq == second.message.seq
            if same and first.value != second.value and first.value not in self.client_values:
                return first, second
        return None

    @cached_property
    def header(self) -> str | None:
        """The effective header that the EPP gave: its last value where it counts. None if it set none, or removed it.

        Append flags are left to ENV-12: the value is what the EPP meant to set.
        """
        value: str | None = None
        for message in self._counting:
            if _removes(message):
                value = None
            for setting in self.settings:
                if setting.message is message:
                    value = setting.value
        return value or None

    # -- the metadata --------------------------------------------------------------------------------------------------

    @cached_property
    def metadata_entries(self) -> tuple[MetadataEntry, ...]:
        """Every place of any answer where the destination's key is in `dynamic_metadata`, in order."""
        return tuple(found for message in self.stream.answers for found in _entries(message, DESTINATION))

    def _in_time(self, message: DecodedMessage) -> bool:
        return self.release is not None and message.seq <= self.release.seq

    @cached_property
    def metadata(self) -> str | None:
        """The effective metadata: the last string under the namespace up to the releasing answer. None if none."""
        found = [
            entry.value
            for entry in self.metadata_entries
            if entry.namespace == self.namespace and self._in_time(entry.message)
        ]
        return (found[-1] or None) if found else None

    @property
    def later_metadata(self) -> tuple[MetadataEntry, ...]:
        """Those on later answers of the request phase, by which Envoy 1.40 steers too, or is kept from it."""
        return tuple(entry for entry in self.late_metadata if entry.message.side == REQUEST)

    @property
    def request_metadata(self) -> str | None:
        """The effective metadata; failing that, the first that comes with a later answer of the request phase."""
        return self.metadata or next((entry.value for entry in self.later_metadata if entry.value), None)

    @cached_property
    def late_metadata(self) -> tuple[MetadataEntry, ...]:
        """The destination under its namespace on answers after the releasing one."""
        own = (entry for entry in self.metadata_entries if entry.namespace == self.namespace)
        return tuple(entry for entry in own if not self._in_time(entry.message))

    @cached_property
    def misplaced_metadata(self) -> tuple[MetadataEntry, ...]:
        """The destination outside its namespace, in time."""
        others = (entry for entry in self.metadata_entries if entry.namespace != self.namespace)
        return tuple(entry for entry in others if self._in_time(entry.message))

    @cached_property
    def fallbacks(self) -> tuple[MetadataEntry, ...]:
        """Every place where an answer has the fallback key of 0.3.0."""
        return tuple(found for message in self.stream.answers for found in _entries(message, FALLBACK))

    @property
    def given(self) -> str | None:
        """The value by which a data plane steers: the header, else the metadata."""
        return self.header or self.metadata


def _removes(message: DecodedMessage) -> bool:
    """Whether an answer removes the destination header, which comes before what it sets."""
    mutation = message.header_mutation
    return mutation is not None and DESTINATION in [name.lower() for name in mutation.remove_headers]


def _settings(message: DecodedMessage) -> list[HeaderSetting]:
    mutation = message.header_mutation
    return [
        HeaderSetting(message, option, value_of(option.header).decode("utf-8", "backslashreplace"))
        for option in (mutation.set_headers if mutation is not None else ())
        if option.header.key.lower() == DESTINATION
    ]


def entries_of(message: DecodedMessage, key: str) -> Iterator[tuple[str | None, Value]]:
    """Where an answer has `key` in `dynamic_metadata`: the namespace, None for the top level, and the value."""
    if message.response is None or not message.response.HasField("dynamic_metadata"):
        return
    for name, value in sorted(message.response.dynamic_metadata.fields.items()):
        if name == key:
            yield None, value
        elif value.WhichOneof("kind") == "struct_value" and key in value.struct_value.fields:
            yield name, value.struct_value.fields[key]


def _entries(message: DecodedMessage, key: str) -> Iterator[MetadataEntry]:
    for namespace, value in entries_of(message, key):
        kind = (value.WhichOneof("kind") or "nothing").removesuffix("_value")
        text = value.string_value if kind == "string" else None
        yield MetadataEntry(message=message, namespace=namespace, kind=kind, value=text)


def values_of(headers: Iterable[tuple[str, bytes]] | None, name: str) -> Sequence[bytes]:
    """Every value of `name`, in order."""
    return [value for key, value in headers or () if key == name]
