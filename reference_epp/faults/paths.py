"""Faults on one path only: rules that hold for most requests, and not for those of one kind."""
# fmt: off

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reference_epp.changes import changed, closing, json_object, method, nothing, parsed, path, refusing
from reference_epp.conversation import Conversation
from reference_epp.deviations import FULL_DUPLEX, SILENT, WHOLE_BODY, WITH_SERVED, WITH_SUBSET, WITHOUT_MODELS, fault
from reference_epp.picker import NOT_FOUND

METHOD_NOT_ALLOWED = 405

IGNORED = {
    "EPP-SUB-02": "so it is where the subset leaves no endpoint",
    "EPP-SUB-03": "so it is for an empty subset",
    "EPP-SUB-06": "so it is where only the port differs",
    "EPP-SUB-07": "so it is for a subset of IPv6 endpoints",
    "EPP-SUB-09": "so it is for a hint on the headers message only",
}
BODYLESS_TOO = {"EPP-SUB-08": "so it is for those without a body"}
OUTSIDE = {"EPP-SUB-01": "the pick is outside the subset"}
NOT_503 = {
    "EPP-ERR-02": "so it is where the pool is empty, and 503 is due",
    "EPP-SUB-02": "so it is where the subset leaves no endpoint, and 503 is due",
    "EPP-SUB-03": "so it is for an empty subset, for which 503 is due",
}


class _NotesTrailers(Conversation):
    trailers = False

    def on_request_trailers(self, trailers: Any) -> Any:
        self.trailers = True
        return super().on_request_trailers(trailers)


def _ignored(
    name: str, kind: str, when: Callable[[Any, bytes], object], breaks: str = "EPP-SUB-01",
    also: dict[str, str] | None = None, versions: tuple[str, ...] = WITH_SUBSET,
    base: type[Conversation] = Conversation, **declared: Any,
) -> None:
    """Declare an EPP that ignores the subset of requests for which `when(conversation, body)` is true."""
    def choose(up: Any, c: Any, body: bytes) -> Any:
        if when(c, body):
            c.subset = None
        return up(body)

    why = f"{kind} get an endpoint of the whole pool, whatever the subset."
    fault(name, breaks, why, changed(base, choose=choose), also=IGNORED | (also or {}),
          versions=versions, **declared)


_ignored("subset-ignored-for-chat", "Requests to /v1/chat/completions",
         lambda c, _: path(c) == b"/v1/chat/completions", also=BODYLESS_TOO)
_ignored("subset-ignored-for-streaming", "Requests with `stream: true`",
         lambda _, body: json_object(body).get("stream") is True, modes=WHOLE_BODY)
_ignored("subset-ignored-for-other-bodies", "Requests whose body is not JSON",
         lambda _, body: body and parsed(body) is None, modes=WHOLE_BODY)
_ignored("subset-ignored-with-trailers", "Requests that end with trailers",
         lambda c, _: c.trailers, base=_NotesTrailers, modes=FULL_DUPLEX)
_ignored("subset-ignored-for-options-and-delete", "OPTIONS and DELETE requests",
         lambda c, _: method(c) in (b"OPTIONS", b"DELETE"), breaks="EPP-SUB-08", also=OUTSIDE)
_ignored("subset-ignored-for-patch", "PATCH requests", lambda c, _: method(c) == b"PATCH")
_ignored("subset-ignored-with-a-query", "Requests whose path has a query",
         lambda c, _: b"?" in c.headers.get(":path", b""), also=BODYLESS_TOO)
_ignored("subset-ignored-for-forms", "Requests of type multipart/form-data",
         lambda c, _: c.headers.get("content-type", b"").startswith(b"multipart/form-data"))
_ignored("subset-ignored-for-grpc", "Requests of type application/grpc",
         lambda c, _: c.headers.get("content-type") == b"application/grpc")
_ignored("subset-ignored-for-unknown-models", "Requests for a model that no server is known to have",
         lambda _, body: b"no-such-model" in body, modes=WHOLE_BODY, versions=WITH_SERVED)
_ignored("subset-ignored-for-empty-posts", "POST requests without a body",
         lambda c, body: not body and method(c) == b"POST", breaks="EPP-SUB-08", also=OUTSIDE)

# -- refused or unanswered

fault("options-refused", "EPP-DEST-07",
      "Every OPTIONS request is answered with 405.",
      refusing(METHOD_NOT_ALLOWED, lambda c, _: method(c) == b"OPTIONS"), also=NOT_503)
fault("get-refused", "EPP-DEST-07",
      "Every GET request is answered with 404.",
      refusing(NOT_FOUND, lambda c, _: method(c) == b"GET"),
      also=NOT_503 | {"EPP-SUB-08": "so it is with a subset", "ENV-07": "GET requests are what has no body"},
      versions=WITHOUT_MODELS)
fault("messages-unanswered", "EPP-DEST-07",
      "A request to /v1/messages, whose prompt is looked for in the wrong place, is never answered.",
      changed(Conversation, release_with_body=nothing, release_on_body=nothing),
      when=lambda c: c.headers.get(":path") == b"/v1/messages", also=SILENT, modes=WHOLE_BODY)
fault("invocations-500", "EPP-DEST-07",
      "A request to /invocations, which may be of two kinds, is answered with 500.",
      refusing(500, lambda c, _: c.headers.get(":path") == b"/invocations"), effect="warn", versions=WITH_SUBSET)
fault("long-queries-refused", "EPP-DEST-07",
      "A request whose path has more than 2,048 bytes, with its query, is answered with 414.",
      refusing(414, lambda c, _: len(c.headers.get(":path", b"")) > 2048),
      also={"EPP-DEST-01": "so it is with a body"})

# -- headers that most requests have


def _needing(name: str, *, exempt: Callable[[Any], bool] = lambda _: False) -> type[Conversation]:
    """Ends the stream of a request without this header with a gRPC error."""
    def act(up: Any, _: Any, headers: Any) -> Any:
        given = name in [entry.key.lower() for entry in headers.headers.headers]
        return up(headers) if given or exempt(headers) else closing()

    return changed(Conversation, on_request_headers=act)


fault("request-id-needed", "ENV-16",
      "A request without x-request-id ends the stream with an error.", _needing("x-request-id"))
fault("untyped-body-is-an-error", "ENV-16",
      "A request with a body and without a content-type ends the stream with a gRPC error.",
      _needing("content-type", exempt=lambda headers: headers.end_of_stream), versions=WITH_SUBSET)
