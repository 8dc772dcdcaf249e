"""Faults of how headers and metadata are put into messages, and of rare input (the contract of ext_proc)."""
# fmt: off

from __future__ import annotations

from typing import Any

from reference_epp.changes import changed, closing, emitting, namespace, setting
from reference_epp.conversation import Conversation
from reference_epp.deviations import (
    BEFORE_SUBSET,
    BUFFERED,
    FULL_DUPLEX,
    WHOLE_BODY,
    WITH_SUBSET,
    WITHOUT_MODELS,
    fault,
)
from reference_epp.names import DESTINATION
from reference_epp.picker import Picked
from reference_epp.variants.answering import has_odd_escape

# -- the entry that sets the destination header


def _option(change: Any) -> type[Conversation]:
    """Calls `change` with the entry that sets the destination header."""
    def act(up: Any, _: Any, common: Any, decision: Picked) -> None:
        up(common, decision)
        change(common.header_mutation.set_headers[0])

    return changed(Conversation, destination_header=act)


def _in_both(option: Any) -> None:
    option.header.value = option.header.raw_value.decode()


def _in_value(option: Any) -> None:
    _in_both(option)
    option.header.ClearField("raw_value")


def _appended(option: Any) -> None:
    option.append.value = True
    option.append_action = option.APPEND_IF_EXISTS_OR_ADD


def _if_absent(option: Any) -> None:
    option.append_action = option.ADD_IF_ABSENT


def _if_present(option: Any) -> None:
    option.append_action = option.OVERWRITE_IF_EXISTS


def _model(c: Any, _: Picked) -> dict[str, bytes]:
    model = c.read_model(b"".join(c.body))
    return {} if model is None else {"x-model-name": model.encode()}


CLIENT_SURVIVES = {"EPP-DEST-05": "a destination header that the client sent survives"}

fault("value-for-raw-value", "ENV-11",
      "The header's value is in `value`, which Envoy drops, instead of `raw_value`.",
      _option(_in_value), also={"EPP-DEST-01": "to Envoy the header is empty"})
fault("both-values", "ENV-11",
      "Requests without a body get the header's value in `value` and in `raw_value`, which Envoy refuses.",
      _option(_in_both), when=lambda c: not c.body)
fault("line-break-in-header", "ENV-11",
      "A header that is set on requests without a body has a line break in its value.",
      setting(lambda *_: {"x-epp-note": b"picked\r\nby load"}), when=lambda c: not c.body)
fault("header-without-name", "ENV-11",
      "A header without a name is set on requests without a body.",
      setting(lambda *_: {"": b"picked"}), when=lambda c: not c.body)
fault("model-in-a-header", "ENV-11",
      "The model that a body names is set as a header, whatever characters it has.",
      setting(_model), modes=WHOLE_BODY, versions=WITHOUT_MODELS)
fault("appends-the-header", "ENV-12",
      "The header is appended (`append` is true) instead of overwritten.",
      _option(_appended), also=CLIENT_SURVIVES)
fault("adds-the-header-if-absent", "ENV-12",
      "The header is set only if the client has not sent it.", _option(_if_absent), also=CLIENT_SURVIVES)
fault("overwrites-the-header-if-present", "ENV-12",
      "The header is set only if the client has sent one.",
      _option(_if_present), also={"EPP-DEST-01": "without a client's header there is none"})

# -- on another answer


def _moved(move: Any) -> type[Conversation]:
    """Calls `move` with the answers to headers and body that let a request go."""
    def act(up: Any, c: Any, *, end_of_stream: bool) -> Any:
        actions = list(up(end_of_stream=end_of_stream))
        if isinstance(c.decision, Picked) and len(actions) > 1:
            move(*actions[:2])
        return actions

    return changed(Conversation, release_with_body=act)


def _move_header(headers: Any, body: Any) -> None:
    mutation = headers.request_headers.response.header_mutation
    body.request_body.response.header_mutation.CopyFrom(mutation)
    mutation.Clear()


def _move_metadata(headers: Any, body: Any) -> None:
    body.dynamic_metadata.CopyFrom(headers.dynamic_metadata)
    headers.ClearField("dynamic_metadata")


fault("header-on-the-body-answer", "ENV-13",
      "In full duplex the header is on the answer to the body, where Envoy does not look.",
      _moved(_move_header), also={"EPP-DEST-01": "Envoy never sees the header"}, modes=FULL_DUPLEX)
fault("metadata-on-the-body-answer", "EPP-DEST-08",
      "In full duplex the metadata is on the answer to the body, after the release of the request.",
      _moved(_move_metadata), modes=FULL_DUPLEX, effect="warn")


@fault("metadata-with-the-response", "ENV-14",
       "The metadata comes with the answer to the response's headers, when the request is long gone.",
       also={"EPP-DEST-02": "the request is let go without it"})
class MetadataWithTheResponse(Conversation):
    def steer(self, _: Any, common: Any, decision: Picked) -> None:
        self.destination_header(common, decision)

    def on_response_headers(self, headers: Any) -> Any:
        actions: list[Any] = list(super().on_response_headers(headers))
        if isinstance(self.decision, Picked):
            self.destination_metadata(actions[0].dynamic_metadata, self.decision)
        return actions


# -- input that is legal and rare

NOT_ALONE = {"ENV-26": "it is not left alone"}


def _raising(inspect: Any) -> type[Conversation]:
    """Raises an error, which ends the stream with a gRPC status, where `inspect(message)` raises or is true."""
    def act(up: Any, _: Any, message: Any) -> Any:
        if inspect(message):
            raise ValueError("not supported")
        return up(message)

    return changed(Conversation, receive=act)


def _decoded(message: Any, encoding: str) -> None:
    for entry in message.request_headers.headers.headers:
        entry.raw_value.decode(encoding)


def _every_third(up: Any, c: Any, message: Any) -> Any:
    head = message.request_headers
    return closing() if c.number % 3 == 0 and head.headers.headers and not head.end_of_stream else up(message)


def _host(c: Any, _: Picked) -> dict[str, bytes]:
    host, _, port = c.headers.get(":authority", b"").rpartition(b":")
    return {":authority": host} if port.isdigit() else {}


fault("non-ascii-header-is-an-error", "ENV-16",
      "A header value that is not ASCII ends the stream with a gRPC error.",
      _raising(lambda message: _decoded(message, "ascii")), also=NOT_ALONE)
fault("header-outside-utf-8-is-an-error", "ENV-16",
      "A header value that is not UTF-8 ends the stream with a gRPC error.",
      _raising(lambda message: _decoded(message, "utf-8")), also=NOT_ALONE)
fault("attributes-are-an-error", "ENV-16",
      "A message with attributes ends the stream with a gRPC error.",
      _raising(lambda message: message.attributes), also=NOT_ALONE)
fault("many-headers-are-an-error", "ENV-16",
      "A request with more than 64 headers ends the stream with a gRPC error.",
      _raising(lambda message: len(message.request_headers.headers.headers) > 64), also=NOT_ALONE)
fault("long-headers-are-an-error", "ENV-16",
      "A request with a header of more than 8 KiB ends the stream with a gRPC error.",
      _raising(lambda message: any(len(one.raw_value) > 8192 for one in message.request_headers.headers.headers)),
      also=NOT_ALONE)
fault("odd-escapes-are-an-error", "ENV-16",
      "A path with a percent sign that escapes nothing ends the stream with a gRPC error.",
      _raising(lambda message: has_odd_escape(message.request_headers)),
      also={"EPP-ERR-04": "there is no ImmediateResponse"}, versions=WITH_SUBSET)
fault("refused-on-their-headers", "ENV-16",
      "Every third request with a body ends with a gRPC error before its body was shown.",
      changed(Conversation, receive=_every_third), versions=BEFORE_SUBSET, modes=BUFFERED)

# -- headers that are Envoy's

OTHER_LINE = {"EPP-TRN-03": "the request line is not the client's any more"}

fault("authority-rewritten", "ENV-26",
      "The request's authority is set to the picked endpoint, which Envoy ignores or refuses.",
      setting(lambda _, decision: {":authority": decision.endpoints[0].text.encode()}), also=OTHER_LINE, effect="warn")
fault("authority-without-its-port", "ENV-26",
      "An authority with a port is set without it, which Envoy ignores or refuses.",
      setting(_host), also=OTHER_LINE, effect="warn")
fault("headers-doubled", "ENV-26",
      "Every header is set again under a second name, so that many become too many for Envoy.",
      setting(lambda c, _: {f"x-original-{name.lstrip(':')}": value for name, value in c.headers.items()}),
      effect="warn")

# -- metadata of later answers


def _namespace_as_text(kind: str) -> type[Conversation]:
    """Answers of a kind have text in the place of the destination's namespace, which Envoy reads as empty."""
    def act(c: Any, answer: Any) -> None:
        if answer.WhichOneof("response") == kind:
            answer.dynamic_metadata.fields[c.epp.metadata_namespace].string_value = "{}"

    return emitting(act)


def _key_again(kind: str, value: Any) -> type[Conversation]:
    """The answer to the body has the destination's key a second time."""
    def act(c: Any, answer: Any) -> None:
        if isinstance(c.decision, Picked) and answer.HasField("request_body"):
            setattr(namespace(c, answer.dynamic_metadata)[DESTINATION], kind, value)

    return emitting(act)


def _another_again(c: Any, answer: Any) -> None:
    others = [one for one in c.epp.picker.pool.endpoints if one.text not in str(c.decision)]
    if others and answer.HasField("request_body"):
        c.destination_metadata(answer.dynamic_metadata, Picked((others[0],)))


fault("other-destination-in-later-metadata", "EPP-DEST-05",
      "The answer to the body has metadata with another endpoint than the header that was sent before.",
      emitting(_another_again),
      also={"EPP-SUB-01": "the other endpoint may be outside the subset", "EPP-DEST-08": "it comes after the release"},
      modes=FULL_DUPLEX)
fault("destination-emptied-in-later-metadata", "EPP-DEST-05",
      "The answer to the body has the destination's key again, with an empty value.",
      _key_again("string_value", ""), modes=FULL_DUPLEX)
fault("destination-unset-in-later-metadata", "EPP-DEST-05",
      "The answer to the body has the destination's key again, with null.",
      _key_again("null_value", 0), modes=FULL_DUPLEX)
fault("later-namespace-is-no-struct", "ENV-14",
      "The answer to the response's headers has text in the place of the destination's namespace.",
      _namespace_as_text("response_headers"), effect="warn")
fault("namespace-of-errors-is-no-struct", "ENV-14",
      "An ImmediateResponse has text in the place of the destination's namespace.",
      _namespace_as_text("immediate_response"), effect="warn")
