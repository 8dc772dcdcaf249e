"""Secrets out of everything that is kept: events at capture, before any digest, and the report itself.

    redactor = Redactor.of(profile)
    entry = redactor.entry(entry)

A secret becomes a typed placeholder, `[redacted:header:authorization]`, wherever its value is: in header lists, inside
protobuf messages (decoded, replaced in every string and bytes field, encoded again), in process output. The same secret
always becomes the same placeholder, so that what was equal stays equal and judges see no difference. Messages must be
redacted before a size limit cuts them, else the beginning of a secret may stay at the cut.

In bodies the placeholder has the length of the secret: their lengths are stated elsewhere, and judged. A body comes in
pieces that are recorded one by one, and a secret may be cut between them: `across` looks at all of them in one.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from conformance.errors import UsageError
from conformance.evidence.episode import Episode
from conformance.evidence.pieces import bodies_of
from conformance.evidence.rewrite import Place, rewrite
from conformance.report.document.blocks import Redaction
from conformance.targets.gateway import AnyProfile
from conformance.targets.profile import Profile
from ext_proc.messages import ProcessingRequest, ProcessingResponse
from ext_proc.record import Author, Entry, Event, Malformed, Message

SHORT = 6
"""Values of fewer bytes are not looked for in free text, only as the whole value of their header."""

SENSITIVE_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"})
SENSITIVE_NAMES = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(?:API|ACCESS|PRIVATE)_?KEY)$", re.IGNORECASE
)

OWN_WORDS = frozenset(
    {"exchange", "stream", "author", "how", "outcome", "phase", "verdict", "ending", "pod", "pods"}
    | {"request_body_mode", "response_body_mode"}
)
"""Fields of events that hold nothing but the suite's own words, by which judges find their way."""

_BODY = "body"
"""The name of what holds one, in events as in messages."""

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A value that must not be kept; `kind` and `name` are what is written in its place."""

    kind: str
    name: str
    value: str = dataclasses.field(repr=False)


class Redactor:
    """Replaces secrets, and counts what it replaced. Without secrets it hands everything back as it is."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._secrets = tuple(secret for secret in secrets if secret.value)
        for secret in self._secrets:
            if not re.fullmatch(r"[\x21-\x7e]+", secret.kind + secret.name):
                raise UsageError(f"a secret can't be called {secret.name!r}", hint="names are printable ASCII")
        self._counts: Counter[Secret] = Counter()
        self._long: list[Secret] = []
        self._short: dict[tuple[bytes, bytes], Secret] = {}
        for secret in self._secrets:
            value = secret.value.encode()
            if len(value) < SHORT:
                self._short[secret.name.lower().encode(), value] = secret
                continue
            self._long.append(secret)
        self._long.sort(key=lambda secret: len(secret.value), reverse=True)
        forms = [b"(%b)" % b"|".join(_forms(secret.value)) for secret in self._long]
        self._pattern = re.compile(b"|".join(forms)) if forms else None
        self._placeholders = {secret: self._placeholder(secret) for secret in self._secrets}

    @classmethod
    def of(cls, profile: AnyProfile) -> Redactor:
        """The secrets of a profile: secret headers, and well-known names among headers, metadata and environment."""
        found = [Secret(kind="header", name=n.lower(), value=v) for n, v in profile.requests.secret_headers.items()]
        metadata = profile.connect.metadata if isinstance(profile, Profile) else {}
        for kind, values in (("header", profile.requests.headers), ("metadata", metadata)):
            found += [
                Secret(kind=kind, name=name.lower(), value=value)
                for name, value in values.items()
                if name.lower() in SENSITIVE_HEADERS
            ]
        variants = profile.start.versions.values() if isinstance(profile, Profile) else ()
        environments = (profile.start.env, *(variant.env for variant in variants))
        found += [
            Secret(kind="env", name=name, value=value)
            for environment in environments
            for name, value in environment.items()
            if SENSITIVE_NAMES.search(name)
        ]
        return cls(found)

    @property
    def redactions(self) -> tuple[Redaction, ...]:
        """What was replaced so far, by kind and name."""
        counts: Counter[tuple[str, str]] = Counter()
        for secret, count in self._counts.items():
            counts[secret.kind, secret.name] += count
        return tuple(Redaction(kind=kind, name=name, count=n) for (kind, name), n in sorted(counts.items()))

    def take_counts(self) -> Counter[Secret]:
        """What was replaced since the last time, for `add_counts` of a redactor in another process."""
        counts, self._counts = self._counts, Counter()
        return counts

    def add_counts(self, counts: Counter[Secret]) -> None:
        """Count what another process replaced."""
        self._counts.update(counts)

    # -- what is redacted ----------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Output of a process, or any other text."""
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def data(self, data: bytes) -> bytes:
        """Bytes in which nothing depends on their length."""
        if self._pattern is None:
            return data
        return self._pattern.sub(lambda match: self._replacement(self._found(match)), data)

    def body(self, data: bytes) -> bytes:
        """A body, or a piece of one: it keeps its length."""
        if self._pattern is None:
            return data
        return self._pattern.sub(lambda match: self._replacement(self._found(match), len(match[0])), data)

    def header(self, name: bytes, value: bytes) -> bytes:
        """The value of a header."""
        short = self._short.get((name.lower(), value))
        return self._replacement(short) if short else self.data(value)

    def event(self, event: E) -> E:
        """An event of the record, of any kind."""
        if not self._secrets:
            return event
        if isinstance(event, Message):
            raw = self._message(event)
            if raw == event.raw:
                return event
            size = None if event.size is None else event.size + len(raw) - len(event.raw)
            return dataclasses.replace(event, raw=raw, size=size)
        if isinstance(event, Malformed):
            return dataclasses.replace(event, raw=self._masked(event.raw), reason=self.text(event.reason))
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(event):
            value = getattr(event, field.name)
            if field.name in OWN_WORDS:
                continue
            if (redacted := self.body(value) if field.name == _BODY else self._value(value)) != value:
                changed[field.name] = redacted
        return dataclasses.replace(event, **changed) if changed else event

    def entry(self, entry: Entry) -> Entry:
        """An entry of the log, at its place."""
        event = self.event(entry.event)
        return entry if event is entry.event else Entry(entry.seq, entry.t, event)

    def episode(self, episode: Episode) -> Episode:
        """A whole episode."""
        entries = tuple(self.entry(entry) for entry in episode.entries)
        return self.across(Episode(id=episode.id, entries=entries))

    def across(self, episode: Episode) -> Episode:
        """An episode of redacted entries without the secrets that are cut between the pieces of a body."""
        if self._pattern is None:
            return episode
        changed: dict[int, bytes] = {}
        for pieces in bodies_of(episode.entries):
            whole = b"".join(piece.data for piece in pieces)
            redacted, at = self.body(whole), 0
            for piece in pieces if redacted != whole else ():
                changed[piece.entry.seq] = piece.message_with(redacted[at : at + len(piece.data)])
                at += len(piece.data)
        return Episode(id=episode.id, entries=tuple(_with_raw(episode.entries, changed))) if changed else episode

    def document(self, document: Any) -> Any:
        """Plain JSON values: every string in them (and no key)."""
        match document:
            case str():
                return self.text(document)
            case dict():
                return {name: self.document(item) for name, item in document.items()}
            case list() | tuple():
                return [self.document(item) for item in document]
            case _:
                return document

    # -- how -----------------------------------------------------------------------------------------------------------

    def _value(self, value: Any) -> Any:
        match value:
            case bytes():
                return self.data(value)
            case str():
                return self.text(value)
            case (bytes() as name, bytes() as header):
                return (self.data(name), self.header(name, header))
            case tuple():
                return tuple(self._value(item) for item in value)
            case list():
                return [self._value(item) for item in value]
            case Mapping():
                return {self._value(name): self._value(item) for name, item in value.items()}
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                return dataclasses.replace(
                    value, **{f.name: self._value(getattr(value, f.name)) for f in dataclasses.fields(value)}
                )
            case _:
                return value

    def _message(self, event: Message) -> bytes:
        found = self._pattern is not None and self._pattern.search(event.raw)
        if not found and not any(value in event.raw for _, value in self._short):
            return event.raw
        if event.truncated:
            return self._masked(event.raw)
        kind = ProcessingRequest if event.author is Author.DATA_PLANE else ProcessingResponse
        try:
            message = kind.FromString(event.raw)
        except DecodeError:
            return self._masked(event.raw)
        if not rewrite(message, self._in_message) and not found:
            return event.raw
        return self._masked(message.SerializeToString(deterministic=True))

    def _in_message(self, place: Place, value: bytes) -> bytes:
        """The policy for `rewrite`: the secrets of the profile, wherever they are."""
        if place.type == "HeaderValue" and place.field != "key":
            return self.header(place.name.encode(), value)
        return self.body(value) if place.field == _BODY else self.data(value)

    def _masked(self, raw: bytes) -> bytes:
        """Bytes whose framing must stay: a secret becomes asterisks of the same length."""
        if self._pattern is None:
            return raw

        def stars(match: re.Match[bytes]) -> bytes:
            self._counts[self._found(match)] += 1
            return b"*" * len(match[0])

        return self._pattern.sub(stars, raw)

    def _found(self, match: re.Match[bytes]) -> Secret:
        return self._long[(match.lastindex or 1) - 1]

    def _replacement(self, secret: Secret, length: int | None = None) -> bytes:
        self._counts[secret] += 1
        placeholder = self._placeholders[secret]
        return placeholder if length is None else placeholder[:length].ljust(length, b"*")

    def _placeholder(self, secret: Secret) -> bytes:
        typed = f"[redacted:{secret.kind}:{secret.name}]".encode()
        return b"[***]" if self._pattern is not None and self._pattern.search(typed) else typed


def _with_raw(entries: Iterable[Entry], changed: Mapping[int, bytes]) -> Iterator[Entry]:
    """The entries, those messages changed that have a place in `changed`."""
    for entry in entries:
        raw = changed.get(entry.seq)
        if raw is None or not isinstance(entry.event, Message):
            yield entry
        else:
            yield Entry(entry.seq, entry.t, dataclasses.replace(entry.event, raw=raw))


def _forms(value: str) -> list[bytes]:
    """Patterns of a value: as it is, and without its scheme (`Bearer`); plain, in base64 and in hexadecimal."""
    values = [value]
    scheme, _, credentials = value.partition(" ")
    if scheme.lower() in ("bearer", "basic", "token", "apikey") and len(credentials.encode()) >= SHORT:
        values.append(credentials)
    texts = [text for one in values for text in (one, *_base64(one.encode()))]
    patterns = [b"".join(map(_character, text)) for text in dict.fromkeys(texts) if len(text.encode()) >= SHORT]
    return [*patterns, *(b"(?i:%b)" % one.encode().hex().encode() for one in values)]


def _base64(data: bytes) -> Iterator[str]:
    """In base64, alone and as part of something longer, which begins 0 to 2 bytes before it."""
    for encoded in (base64.b64encode, base64.urlsafe_b64encode):
        yield encoded(data).decode().rstrip("=")
        for before in range(3):
            first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
            yield encoded(bytes(before) + data).decode()[first:last]


@functools.cache
def _character(character: str) -> bytes:
    """A pattern of a character as it is, with percent encoding, or escaped as in JSON or a log. Hexadecimal digits have
    either case."""
    plain = character.encode("utf-8", "surrogatepass")
    units = character.encode("utf-16-be", "surrogatepass").hex()
    forms = [
        re.escape(json.dumps(character, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")),
        b"(?i:%b)" % b"".join(b"%%%02x" % byte for byte in plain),
        b"(?i:%b)" % b"".join(rb"\\x%02x" % byte for byte in plain),
        b"(?i:%b)" % b"".join(rb"\\u%b" % units[at : at + 4].encode() for at in range(0, len(units), 4)),
        rb"\\?/" if character == "/" else re.escape(plain),
    ]
    return b"(?:%b)" % b"|".join(forms)
