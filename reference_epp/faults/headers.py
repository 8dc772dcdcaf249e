"""Faults of how headers and metadata are put into messages (the contract of ext_proc)."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from reference_epp import answers
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, FULL_DUPLEX, WITH_SUBSET, WITHOUT_MODELS, fault
from reference_epp.epp import Action, Close
from reference_epp.names import DESTINATION
from reference_epp.picker import Picked
from reference_epp.service import INTERNAL
from reference_epp.variants.answering import has_odd_escape

if TYPE_CHECKING:
    from ext_proc.messages import CommonResponse, HeaderValueOption, HttpHeaders, ProcessingResponse, Struct


class OtherOption(Conversation):
    """Changes the entry that sets the destination header."""

    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        self.change(common.header_mutation.set_headers[0])

    def change(self, option: HeaderValueOption) -> None:
        """Change `option`."""
        option.header.value = option.header.raw_value.decode()


@fault(
    "value-for-raw-value",
    breaks="ENV-11",
    why="The header's value is in `value`, which Envoy drops, instead of `raw_value`.",
    also_breaks={"EPP-DEST-01": "to Envoy the header is empty"},
)
class ValueForRawValue(OtherOption):
    def change(self, option: HeaderValueOption) -> None:
        super().change(option)
        option.header.ClearField("raw_value")


@fault(
    "both-values",
    breaks="ENV-11",
    why="Requests without a body get the header's value in `value` and in `raw_value`, which Envoy refuses.",
)
class BothValues(OtherOption):
    def change(self, option: HeaderValueOption) -> None:
        if not self.body:
            super().change(option)


class ExtraHeader(Conversation):
    """Sets one more header on requests without a body."""

    extra = ("x-epp-note", b"picked\r\nby load")

    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if not self.body:
            answers.set_header(common.header_mutation, *self.extra)


@fault(
    "line-break-in-header",
    breaks="ENV-11",
    why="A header that is set on requests without a body has a line break in its value.",
)
class LineBreakInHeader(ExtraHeader):
    pass


@fault(
    "model-in-a-header",
    breaks="ENV-11",
    why="The model that a body names is set as a header, whatever characters it has.",
    modes=("full-duplex", "buffered"),
    versions=WITHOUT_MODELS,
)
class ModelInAHeader(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        model = self.read_model(b"".join(self.body))
        if model is not None:
            answers.set_header(common.header_mutation, "x-model-name", model.encode())


@fault("header-without-name", breaks="ENV-11", why="A header without a name is set on requests without a body.")
class HeaderWithoutName(ExtraHeader):
    extra = ("", b"picked")


CLIENT_SURVIVES = {"EPP-DEST-05": "a destination header that the client sent survives"}


@fault(
    "appends-the-header",
    breaks="ENV-12",
    why="The header is appended (`append` is true) instead of overwritten.",
    also_breaks=CLIENT_SURVIVES,
)
class AppendsTheHeader(OtherOption):
    def change(self, option: HeaderValueOption) -> None:
        option.append.value = True
        option.append_action = option.APPEND_IF_EXISTS_OR_ADD


@fault(
    "adds-the-header-if-absent",
    breaks="ENV-12",
    why="The header is set only if the client has not sent it.",
    also_breaks=CLIENT_SURVIVES,
)
class AddsTheHeaderIfAbsent(OtherOption):
    def change(self, option: HeaderValueOption) -> None:
        option.append_action = option.ADD_IF_ABSENT


@fault(
    "overwrites-the-header-if-present",
    breaks="ENV-12",
    why="The header is set only if the client has sent one.",
    also_breaks={"EPP-DEST-01": "without a client's header there is none"},
)
class OverwritesTheHeaderIfPresent(OtherOption):
    def change(self, option: HeaderValueOption) -> None:
        option.append_action = option.OVERWRITE_IF_EXISTS


@fault(
    "header-on-the-body-answer",
    breaks="ENV-13",
    why="In full duplex the header is on the answer to the body, where Envoy does not look.",
    also_breaks={"EPP-DEST-01": "Envoy never sees the header"},
    modes=FULL_DUPLEX,
)
class HeaderOnTheBodyAnswer(Conversation):
    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        actions = list(super().release_with_body(end_of_stream=end_of_stream))
        if isinstance(self.decision, Picked) and len(actions) > 1:
            headers, body = (answer for answer in actions[:2])
            mutation = headers.request_headers.response.header_mutation  # type: ignore[union-attr]
            body.request_body.response.header_mutation.CopyFrom(mutation)  # type: ignore[union-attr]
            mutation.Clear()
        return actions


@fault(
    "namespace-is-no-struct",
    breaks="ENV-14",
    why="The metadata namespace holds the endpoint as a string, which Envoy reads as an empty struct.",
    also_breaks={"EPP-DEST-02": "there is no entry in the namespace"},
)
class NamespaceIsNoStruct(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        metadata.fields[self.epp.metadata_namespace].string_value = f"{DESTINATION}={self.destination(decision)}"


@fault(
    "metadata-on-the-body-answer",
    breaks="EPP-DEST-08",
    why="In full duplex the metadata is on the answer to the body, after the one that lets the request go.",
    modes=FULL_DUPLEX,
    effect="warn",
)
class MetadataOnTheBodyAnswer(Conversation):
    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        actions = list(super().release_with_body(end_of_stream=end_of_stream))
        if isinstance(self.decision, Picked) and len(actions) > 1:
            headers, body = (answer for answer in actions[:2])
            body.dynamic_metadata.CopyFrom(headers.dynamic_metadata)  # type: ignore[union-attr]
            headers.ClearField("dynamic_metadata")  # type: ignore[union-attr]
        return actions


@fault(
    "metadata-with-the-response",
    breaks="ENV-14",
    why="The metadata comes with the answer to the response's headers, when the request is long gone.",
    also_breaks={"EPP-DEST-02": "the request is let go without it"},
)
class MetadataWithTheResponse(Conversation):
    def steer(self, answer: ProcessingResponse, common: CommonResponse, decision: Picked) -> None:
        self.destination_header(common, decision)

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        actions = list(super().on_response_headers(headers))
        if isinstance(self.decision, Picked):
            self.destination_metadata(actions[0].dynamic_metadata, self.decision)  # type: ignore[union-attr]
        return actions


# -- input that is legal and rare


ODD_INPUT = {"ENV-26": "it is not left alone"}


class InputRaises(Conversation):
    """Raises an error, which ends the stream with a gRPC status, for some requests."""

    def receive(self, message: Any) -> list[Action]:
        self.inspect(message)
        return super().receive(message)

    def inspect(self, message: Any) -> None:
        """Raise `ValueError` if `message` is not liked."""


@fault(
    "non-ascii-header-is-an-error",
    breaks="ENV-16",
    why="A header value that is no ASCII ends the stream with a gRPC error.",
    also_breaks=ODD_INPUT,
)
class NonAsciiHeaderIsAnError(InputRaises):
    def inspect(self, message: Any) -> None:
        for entry in message.request_headers.headers.headers:
            entry.raw_value.decode("ascii")


@fault(
    "refused-on-their-headers",
    breaks="ENV-16",
    why="Every third request with a body ends with a gRPC error before its body was shown.",
    versions=("0.2.0",),
    modes=BUFFERED,
)
class RefusedOnTheirHeaders(Conversation):
    def receive(self, message: Any) -> list[Action]:
        head = message.request_headers
        refused = self.number % 3 == 0 and head.headers.headers and not head.end_of_stream
        return [Close(INTERNAL, "the third")] if refused else super().receive(message)


@fault(
    "header-outside-utf-8-is-an-error",
    breaks="ENV-16",
    why="A header value that is no UTF-8 ends the stream with a gRPC error.",
    also_breaks=ODD_INPUT,
)
class HeaderOutsideUtf8IsAnError(InputRaises):
    def inspect(self, message: Any) -> None:
        for entry in message.request_headers.headers.headers:
            entry.raw_value.decode()


@fault(
    "attributes-are-an-error",
    breaks="ENV-16",
    why="A message with attributes ends the stream with a gRPC error.",
    also_breaks=ODD_INPUT,
)
class AttributesAreAnError(InputRaises):
    def inspect(self, message: Any) -> None:
        if message.attributes:
            raise ValueError("attributes are not supported")


@fault(
    "many-headers-are-an-error",
    breaks="ENV-16",
    why="A request with more than 64 headers ends the stream with a gRPC error.",
    also_breaks=ODD_INPUT,
)
class ManyHeadersAreAnError(InputRaises):
    def inspect(self, message: Any) -> None:
        if len(message.request_headers.headers.headers) > 64:
            raise ValueError("too many headers")


@fault(
    "long-headers-are-an-error",
    breaks="ENV-16",
    why="A request with a header of more than 8 KiB ends the stream with a gRPC error.",
    also_breaks=ODD_INPUT,
)
class LongHeadersAreAnError(InputRaises):
    def inspect(self, message: Any) -> None:
        if any(len(header.raw_value) > 8192 for header in message.request_headers.headers.headers):
            raise ValueError("too long a header")


@fault(
    "odd-escapes-are-an-error",
    breaks="ENV-16",
    why="A request whose path has a percent sign that escapes nothing ends the stream with a gRPC error.",
    also_breaks={"EPP-ERR-04": "there is no ImmediateResponse"},
    versions=WITH_SUBSET,
)
class OddEscapesAreAnError(InputRaises):
    def inspect(self, message: Any) -> None:
        if has_odd_escape(message.request_headers):
            raise ValueError("an escape that is none")


@fault(
    "authority-rewritten",
    breaks="ENV-26",
    why="The request's authority is set to the picked endpoint, which Envoy ignores or refuses.",
    also_breaks={"EPP-TRN-03": "the request line is not the client's any more"},
    effect="warn",
)
class AuthorityRewritten(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        answers.set_header(common.header_mutation, ":authority", decision.endpoints[0].text.encode())


@fault(
    "authority-without-its-port",
    breaks="ENV-26",
    why="An authority with a port is set without it, which Envoy ignores or refuses.",
    also_breaks={"EPP-TRN-03": "the request line is not the client's any more"},
    effect="warn",
)
class AuthorityWithoutItsPort(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        host, _, port = self.headers.get(":authority", b"").rpartition(b":")
        if port.isdigit():
            answers.set_header(common.header_mutation, ":authority", host)


@fault(
    "headers-doubled",
    breaks="ENV-26",
    why="Every header of the request is set again under a second name, so that many become too many for Envoy.",
    effect="warn",
)
class HeadersDoubled(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        for name, value in self.headers.items():
            answers.set_header(common.header_mutation, f"x-original-{name.lstrip(':')}", value)
