"""The destination as a data plane finds it: what the EPP's answers make of the request's headers and metadata.

`header_list` applies header mutations as Envoy does (removals first; an entry without append flags overwrites; names in
any case; the value is `raw_value`, else `value`). `Steering` looks for the destination: in the header where header
mutations count in the body mode (ENV-13), in `dynamic_metadata` up to the answer that releases the request (ENV-14),
and where it was put besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from conformance.conversation import BUFFERED_MODES, Conversation
from conformance.flow import Flow
from conformance.lane import Lane
from conformance.said import DESTINATION, FALLBACK, REQUEST, HeaderList, Said
from ext_proc.headers import value_of
from ext_proc.messages import HeaderMutation, HeaderValueOption, Value

_PROTECTED = frozenset({":method", ":scheme", ":authority", "host"})


def protected(name: str) -> bool:
    """Whether Envoy ignores changes of this request header (its default `HeaderMutationRules`)."""
    return name in _PROTECTED or name.startswith("x-envoy-")


def sent_headers(lane: Lane) -> HeaderList | None:
    """The headers that the data plane sent in this direction; None if they were not observed."""
    return lane.headers.headers if lane.headers is not None else None


def counting(lane: Lane) -> tuple[Said, ...]:
    """The answers of a direction whose header mutations take effect, in order."""
    answers = (lane.headers_answer,) if lane.headers_answer is not None else ()
    return (*answers, *lane.body_answers) if lane.mode in BUFFERED_MODES else answers


def header_list(lane: Lane, *, append: bool = False) -> HeaderList | None:
    """The headers of a direction after the answers that count; None if not observed.

    `append`: read an entry without append flags as the API's default says, which is not what Envoy does.
    """
    headers, answers = sent_headers(lane), counting(lane)
    if headers is None or any(said.partial for said in answers):
        return None
    for said in answers:
        if said.header_mutation is not None:
            headers = apply(said.header_mutation, headers, append=append)
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
        match _mode(option, append):
            case "append" if present:
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


def _mode(option: HeaderValueOption, append: bool) -> str:
    if option.HasField("append"):
        return "append" if option.append.value else "overwrite"
    match option.append_action:
        case HeaderValueOption.ADD_IF_ABSENT:
            return "if-absent"
        case HeaderValueOption.OVERWRITE_IF_EXISTS:
            return "if-exists"
        case HeaderValueOption.APPEND_IF_EXISTS_OR_ADD if append:
            return "append"
        case _:
            return "overwrite"


class Setting(NamedTuple):
    """One place where an answer sets the destination header. `value` is that of whichever field holds it."""

    said: Said
    option: HeaderValueOption
    value: str

    @property
    def conditional(self) -> bool:
        """Whether it may keep a value of the client, or set nothing (ENV-12). What is removed before can't be kept."""
        mode = _mode(self.option, False)
        return mode == "if-exists" or (mode != "overwrite" and not _removes(self.said))


class Entry(NamedTuple):
    """One place where an answer has the destination in `dynamic_metadata`.

    `namespace` is None for the top level. `value` is None if it is not a string; `kind` is what it is.
    """

    said: Said
    namespace: str | None
    kind: str
    value: str | None


@dataclass(frozen=True, kw_only=True)
class Steering:
    """The destination in one conversation. `namespace` is the one in which its metadata belongs."""

    conversation: Conversation
    flow: Flow
    namespace: str

    @property
    def release(self) -> Said | None:
        """The answer that released the request."""
        return self.flow.request.release

    @cached_property
    def _counting(self) -> tuple[Said, ...]:
        return counting(self.flow.request)

    @cached_property
    def observed(self) -> bool:
        """False if a message that may carry the destination was not kept whole."""
        return not any(said.partial for said in self._counting)

    # -- the header ----------------------------------------------------------------------------------------------------

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Every destination header set where it counts, in order."""
        return tuple([found for said in self._counting for found in _settings(said)])

    @cached_property
    def late_settings(self) -> tuple[Setting, ...]:
        """Every destination header set on a request-phase answer where it does not count."""
        counted = {said.seq for said in self._counting}
        others = [said for said in self.flow.answers if said.side == REQUEST and said.seq not in counted]
        return tuple([found for said in others for found in _settings(said)])

    @cached_property
    def client_values(self) -> tuple[str, ...]:
        """The destination headers that the client sent itself."""
        headers = sent_headers(self.flow.request) or []
        return tuple(value.decode("utf-8", "backslashreplace") for name, value in headers if name == DESTINATION)

    @cached_property
    def header(self) -> str | None:
        """The effective header that the EPP gave: its last value where it counts. None if it set none, or removed it.

        Append flags are left to ENV-12: the value is what the EPP meant to set.
        """
        value: str | None = None
        for said in self._counting:
            if _removes(said):
                value = None
            for setting in self.settings:
                if setting.said is said:
                    value = setting.value
        return value or None

    # -- the metadata --------------------------------------------------------------------------------------------------

    @cached_property
    def metadata_entries(self) -> tuple[Entry, ...]:
        """Every place of any answer where the destination's key is in `dynamic_metadata`, in order."""
        return tuple(found for said in self.flow.answers for found in _entries(said, DESTINATION))

    def _in_time(self, said: Said) -> bool:
        return self.release is not None and said.seq <= self.release.seq

    @cached_property
    def metadata(self) -> str | None:
        """The effective metadata: the last string under the namespace up to the releasing answer. None if none."""
        found = [
            entry.value
            for entry in self.metadata_entries
            if entry.namespace == self.namespace and self._in_time(entry.said)
        ]
        return (found[-1] or None) if found else None

    @property
    def request_metadata(self) -> str | None:
        """The effective metadata; failing that, the first that comes with a later answer of the request phase, by which
        Envoy 1.40 steers too."""
        late = (entry.value for entry in self.late_metadata if entry.said.side == REQUEST)
        return self.metadata or next(late, None)

    @cached_property
    def late_metadata(self) -> tuple[Entry, ...]:
        """The destination under its namespace on answers after the releasing one."""
        own = (entry for entry in self.metadata_entries if entry.namespace == self.namespace)
        return tuple(entry for entry in own if not self._in_time(entry.said))

    @cached_property
    def misplaced_metadata(self) -> tuple[Entry, ...]:
        """The destination outside its namespace, in time."""
        others = (entry for entry in self.metadata_entries if entry.namespace != self.namespace)
        return tuple(entry for entry in others if self._in_time(entry.said))

    @cached_property
    def fallbacks(self) -> tuple[Entry, ...]:
        """Every place where an answer has the fallback key of 0.3.0."""
        return tuple(found for said in self.flow.answers for found in _entries(said, FALLBACK))

    @property
    def given(self) -> str | None:
        """The value by which a data plane steers: the header, else the metadata."""
        return self.header or self.metadata


def _removes(said: Said) -> bool:
    """Whether an answer removes the destination header, which comes before what it sets."""
    mutation = said.header_mutation
    return mutation is not None and DESTINATION in [name.lower() for name in mutation.remove_headers]


def _settings(said: Said) -> Iterator[Setting]:
    mutation = said.header_mutation
    for option in mutation.set_headers if mutation is not None else ():
        if option.header.key.lower() == DESTINATION:
            value = value_of(option.header).decode("utf-8", "backslashreplace")
            yield Setting(said=said, option=option, value=value)


def _entries(said: Said, key: str) -> Iterator[Entry]:
    if said.response is None or not said.response.HasField("dynamic_metadata"):
        return
    for name, value in sorted(said.response.dynamic_metadata.fields.items()):
        if name == key:
            yield _entry(said, None, value)
        elif value.WhichOneof("kind") == "struct_value" and key in value.struct_value.fields:
            yield _entry(said, name, value.struct_value.fields[key])


def _entry(said: Said, namespace: str | None, value: Value) -> Entry:
    kind = (value.WhichOneof("kind") or "nothing").removesuffix("_value")
    return Entry(said=said, namespace=namespace, kind=kind, value=value.string_value if kind == "string" else None)


def values_of(headers: Iterable[tuple[str, bytes]] | None, name: str) -> Sequence[bytes]:
    """Every value of `name`, in order."""
    return [value for key, value in headers or () if key == name]
