"""Faults of transparency: the request that leaves is not the one that the client sent."""
# fmt: off

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any, ClassVar

from ext_proc.messages import ProcessingResponse
from reference_epp.changes import bodyless, changed, removing, rewritten, setting
from reference_epp.conversation import Conversation
from reference_epp.deviations import FULL_DUPLEX, fault
from reference_epp.names import DESTINATION

KNOWN = {"host", "accept", "authorization", "content-type", "content-length", "user-agent", "x-request-id"}

warned = partial(fault, effect="warn")


class _NotesRepeated(Conversation):
    """Notes the headers that came more than once."""

    repeated: tuple[str, ...] = ()

    def on_request_headers(self, headers: Any) -> Any:
        names = [entry.key.lower() for entry in headers.headers.headers]
        self.repeated = tuple(sorted({name for name in names if names.count(name) > 1} - {DESTINATION}))
        return super().on_request_headers(headers)


def _if_there(name: str, value: Any) -> type[Conversation]:
    """Sets a header of the request to `value(old)` if it is there."""
    return setting(lambda c, _: {name: value(c.headers[name])} if name in c.headers else {})


def _last_of_repeated(c: Any, _: Any) -> dict[str, bytes]:
    return {name: c.headers[name] for name in c.repeated}


def _unknown(c: Any) -> list[str]:
    return sorted({name for name in c.headers if not name.startswith((":", "x-gateway-", "x-forwarded-"))} - KNOWN)


def _action_unset(up: Any, _: Any, common: Any, decision: Any) -> None:
    up(common, decision)
    common.header_mutation.set_headers[0].ClearField("append_action")


def _trailers_removed(up: Any, _: Any, trailers: Any) -> Any:
    actions = list(up(trailers))
    for one in actions:
        if isinstance(one, ProcessingResponse) and one.HasField("request_trailers"):
            removed = one.request_trailers.header_mutation.remove_headers
            removed.extend(entry.key for entry in trailers.trailers.headers)
    return actions


warned("authorization-removed", "EPP-TRN-01",
       "The client's authorization header is removed.", removing(lambda _: ["authorization"]))
warned("content-type-changed", "EPP-TRN-02",
       "The request's content-type is set to `text/plain`.", _if_there("content-type", lambda _: b"text/plain"))
warned("path-changed", "EPP-TRN-03",
       "The request's path gets a prefix.",
       setting(lambda c, _: {":path": b"/epp" + c.headers.get(":path", b"/")}))
warned("duplicate-headers-dropped", "EPP-TRN-04",
       "All headers are set again from a map: only the last of repeated ones is left.",
       setting(_last_of_repeated, _NotesRepeated))
warned("duplicate-headers-dropped-of-bodyless", "EPP-TRN-04",
       "Headers of requests without a body are set again from a map: only the last of repeated ones is left.",
       setting(lambda c, _: _last_of_repeated(c, _) if bodyless(c) else {}, _NotesRepeated))
warned("content-encoding-added", "EPP-TRN-05",
       "Requests are said to be gzip, and their bodies are as they were.",
       setting(lambda c, _: {} if "content-encoding" in c.headers else {"content-encoding": b"gzip"}))
warned("unknown-headers-removed", "EPP-TRN-06",
       "Headers of the client that are not on a list of known ones are removed.", removing(_unknown))
warned("trace-state-of-others-lost", "EPP-TRN-06",
       "`tracestate` has the EPP's own entry alone, which takes the trace away from others.",
       _if_there("tracestate", lambda _: b"epp=1"))
warned("baggage-lost", "EPP-TRN-06",
       "Only the first entry of W3C `baggage` goes on.", _if_there("baggage", lambda old: old.partition(b",")[0]))
warned("request-trailers-removed", "EPP-TRN-06",
       "The trailers of every request are removed by the answer to them.",
       changed(Conversation, on_request_trailers=_trailers_removed), modes=FULL_DUPLEX)
warned("append-action-unset", "EPP-TRN-07",
       "The entry of the destination header does not say how to set it: Envoy overwrites, others append.",
       changed(Conversation, destination_header=_action_unset))


@warned("model-of-the-latest-request", "EPP-TRN-05",
        "Bodies are written again with the model of the latest request on the connection.", modes=FULL_DUPLEX)
class ModelOfTheLatestRequest(Conversation):
    latest: ClassVar[dict[int, object]] = {}
    named = False

    def on_request_body(self, body: Any) -> Any:
        found = re.search(rb'"model": ("[^"]+")', b"".join([*self.body, body.body]))
        if found and not self.named:
            self.named = True
            self.latest[self.connection] = json.loads(found[1])
        return super().on_request_body(body)

    def stream(self, direction: Any, body: bytes, *, end_of_stream: bool) -> Any:
        own = self.latest.get(self.connection)
        if direction == "request" and self.named:
            body = rewritten(body, lambda value: {**value, "model": own})
        return super().stream(direction, body, end_of_stream=end_of_stream)
