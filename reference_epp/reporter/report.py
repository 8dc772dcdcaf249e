"""Put what the reporter says into the message that ends a response, in every body mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ext_proc.messages import ProcessingResponse
from reference_epp.reporter.attributes import Reporter
from reference_epp.reporter.usage import UsageReader

if TYPE_CHECKING:
    from ext_proc.messages import HttpHeaders, ProcessingRequest, Struct


class Report:
    """Follows one response from its headers to its end."""

    reader_type: type[UsageReader] = UsageReader

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.reader: UsageReader | None = None
        """Set while the response's body is under way."""

    def follow(self, message: ProcessingRequest, actions: Sequence[Any]) -> None:
        """Take a message of the response; `actions` are what is sent for it, and get the values if it is the last."""
        match message.WhichOneof("request"):
            case "response_headers" if not message.response_headers.end_of_stream:
                self.reader = self.begin(message.response_headers)
            case "response_body" if self.reader is not None:
                self.reader.feed(message.response_body.body)
                self.piece(actions, last=message.response_body.end_of_stream)
            case "response_trailers" if self.reader is not None:
                self.trailers(actions)

    def begin(self, headers: HttpHeaders) -> UsageReader:
        """What reads the body of a response with these headers."""
        values = {entry.key.lower(): entry.raw_value or entry.value.encode() for entry in headers.headers.headers}
        names = (":status", "content-type", "content-encoding")
        return self.reader_type(*(values.get(name, b"").decode("latin-1") for name in names))

    def piece(self, actions: Sequence[Any], *, last: bool) -> None:
        """A piece of the body was taken in; the last of its answers carries the values if the response ends here."""
        if last:
            self.attach(actions)
            self.reader = None

    def trailers(self, actions: Sequence[Any]) -> None:
        """Trailers end the response, and the body's last answer has left: the values come with theirs."""
        self.attach(actions)
        self.reader = None

    def attach(self, actions: Sequence[Any]) -> None:
        """Put the values into the last of `actions`, if that is an answer."""
        if actions and isinstance(answer := actions[-1], ProcessingResponse):
            for namespace, name, value in self.values():
                self.put(answer.dynamic_metadata, namespace, name, value)

    def values(self) -> Iterator[tuple[str, str, int]]:
        """Namespace, name and value of what is to be reported of the body so far."""
        assert self.reader is not None
        return self.reporter.report(self.reader.usage())

    def put(self, metadata: Struct, namespace: str, name: str, value: int) -> None:
        """Put one value into the dynamic metadata, beside what is there."""
        metadata.fields[namespace].struct_value.fields[name].number_value = value
