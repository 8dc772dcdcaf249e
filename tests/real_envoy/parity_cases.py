"""The parity matrix: requests × modes × protocols, response shapes × modes × protocols, EPP behaviours × modes."""

from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Iterator

from parity_behaviours import FOUND
from parity_gateways import MODES
from parity_model_server import Raw
from parity_stack import Case
from parity_violations import SWAPPED

from fake_proxy.client import Abort, Chunk, HttpRequest
from fake_proxy.scripted import UpstreamReply, json_reply, sse_reply

_HEADERS = ((b"content-type", b"application/json"), (b"accept", b"a/b"), (b"X-Case", b"1"))
_PROMPT = b'{"model": "m", "prompt": "x"}'
_LARGE = bytes(range(256)) * 5000  # 1.28 MB: more than the buffer of a BUFFERED gateway
_BIG = bytes(range(256)) * 3000  # 768 kB: less
_JSON = json_reply({"ok": True})

REQUESTS = {
    "get": HttpRequest(method="GET", path="/v1/models", headers=_HEADERS[1:]),
    "head": HttpRequest(method="HEAD", path="/v1/models"),
    "post": HttpRequest(body=_PROMPT, headers=_HEADERS),
    "put": HttpRequest(method="PUT", body=_PROMPT, headers=_HEADERS),
    "delete": HttpRequest(method="DELETE", path="/v1/models/m"),
    "empty": HttpRequest(headers=_HEADERS),
    "chunked": HttpRequest(body=_PROMPT, headers=_HEADERS, chunked=True),
    "chunked-empty": HttpRequest(headers=_HEADERS, chunked=True),
    "trailers": HttpRequest(body=_PROMPT, headers=_HEADERS, trailers=((b"x-sum", b"1"), (b"X-Sum", b"2"))),
    "trailers-only": HttpRequest(headers=_HEADERS, trailers=((b"x-sum", b"1"),), chunked=True),
    "big": HttpRequest(body=_BIG, headers=_HEADERS),
    "large": HttpRequest(body=_LARGE, headers=_HEADERS),
    "large-chunked": HttpRequest(body=_LARGE, headers=_HEADERS, chunked=True),
    "query": HttpRequest(method="GET", path="/v1/models?a=b&c=%20d"),
    "own-request-id": HttpRequest(body=_PROMPT, headers=((b"x-request-id", b"mine"),)),
    "doubled-headers": HttpRequest(body=_PROMPT, headers=((b"x-a", b"1"), (b"x-a", b"2"), (b"x-b", b""))),
    "high-bytes": HttpRequest(body=_PROMPT, headers=((b"x-a", b"caf\xc3\xa9 \xff"),)),
    "client-picks": HttpRequest(body=_PROMPT, headers=((b"x-gateway-destination-endpoint", b"127.0.0.1:1"),)),
    "known-headers": HttpRequest(
        body=_PROMPT,
        headers=(
            (b"accept", b"a/b"),
            (b"cookie", b"a=1"),
            (b"Accept", b"c/d"),
            (b"cookie", b"b=2"),
            (b"via", b"1"),
            (b"x-forwarded-proto", b"https"),
            (b"x-envoy-max-retries", b"1"),
            (b"x-envoy-peer-metadata", b"1"),
            (b"x-forwarded-for", b"10.0.0.1"),
            (b"user-agent", b"a"),
            (b"user-agent", b"b"),
        ),
    ),
    "get-with-body": HttpRequest(method="GET", body=_PROMPT, headers=_HEADERS),
    "options": HttpRequest(method="OPTIONS", headers=((b"origin", b"a"), (b"access-control-request-method", b"POST"))),
    "connection": HttpRequest(
        body=_PROMPT, headers=((b"connection", b"keep-alive, x-a"), (b"x-a", b"1"), (b"keep-alive", b"1"))
    ),
    "expect": HttpRequest(body=_PROMPT, headers=((b"expect", b"100-continue"),)),
    "te": HttpRequest(body=_PROMPT, headers=((b"te", b"gzip, trailers"), (b"proxy-connection", b"close"))),
    "te-only": HttpRequest(body=_PROMPT, headers=((b"te", b"gzip"),)),
}
_HTTP1_ONLY = {"connection", "expect", "te", "te-only"}

PACED = {
    "paced": HttpRequest(
        body=(Chunk(data=b"one, ", await_echo=True), Chunk(data=b"two, ", await_echo=True), Chunk(data=b"three")),
        headers=_HEADERS,
        chunked=True,
    ),
    "paced-large": HttpRequest(
        body=tuple(Chunk(data=bytes([number]) * 16_384, await_echo=True) for number in range(6)), headers=_HEADERS
    ),
    "paced-trailers": HttpRequest(
        body=(Chunk(data=b"one, ", await_echo=True), Chunk(data=b"two")), headers=_HEADERS, trailers=((b"x-sum", b"1"),)
    ),
}

# the EPP has said its first word before the body comes
_LATE_BODY = HttpRequest(body=(Chunk(data=_PROMPT, after=0.1),), headers=_HEADERS, chunked=True)
LATE = {
    "late-body": _LATE_BODY,
    "late-trailers": dataclasses.replace(_LATE_BODY, trailers=((b"x-sum", b"1"),)),
    "trailers-only": REQUESTS["trailers-only"],
}

# the response begins before the rest of the request comes, and ends after it
_CONTINUED = HttpRequest(
    body=(Chunk(data=b"one, ", await_echo=True), Chunk(data=b"two", after=0.2)), headers=_HEADERS, chunked=True
)
_EARLY = Raw(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfirst ", body=(b"end",), early=True)

REPLIES = {
    "json": _JSON,
    "sse": sse_reply(b"one", b"two", b"three", b"[DONE]"),
    "no-content": UpstreamReply(status=204),
    "not-modified": UpstreamReply(status=304, headers=((b"etag", b'"x"'),)),
    "empty": UpstreamReply(headers=((b"content-type", b"text/plain"),)),
    "trailers": UpstreamReply(body=(b"data",), trailers=((b"x-tokens", b"7"),)),
    "sse-trailers": dataclasses.replace(sse_reply(b"one", b"two"), trailers=((b"x-tokens", b"7"),)),
    "large": UpstreamReply(body=(_LARGE,)),
    "big": UpstreamReply(body=(_BIG,)),
    "404": json_reply({"error": "no such model"}, status=404),
    "500": UpstreamReply(status=500, body=(b"oops",)),
    "doubled-headers": UpstreamReply(headers=((b"set-cookie", b"a=1"), (b"Set-Cookie", b"b=2")), body=(b"x",)),
    "gzip": UpstreamReply(
        headers=((b"content-encoding", b"gzip"), (b"vary", b"a")), body=(gzip.compress(b"x" * 99, mtime=0),)
    ),
    "known-headers": UpstreamReply(
        headers=(
            (b"vary", b"a"),
            (b"cache-control", b"no-store"),
            (b"Vary", b"b"),
            (b"x-envoy-upstream-service-time", b"7"),
            (b"server", b"vllm"),
            (b"date", b"now"),
            (b"keep-alive", b"1"),
            (b"x-envoy-thing", b"1"),
            (b"via", b"1"),
        ),
        body=(b"x",),
    ),
    "empty-chunked": UpstreamReply(body=(b"", b"")),
    "503-with-body": json_reply({"error": "busy"}, status=503),
    "continue": Raw(raw=b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", end="stays"),
    "early-hints": Raw(
        raw=b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", end="stays"
    ),
    "until-closed": Raw(raw=b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nsome text"),
    "http-1.0": Raw(raw=b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"),
    "connection-close": Raw(raw=b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"),
    "closes": Raw(),
    "resets": Raw(end="resets"),
    "no-http": Raw(raw=b"SSH-2.0-OpenSSH_9.2\r\n", end="stays"),
    "half-a-head": Raw(raw=b"HTTP/1.1 200 OK\r\ncontent-le"),
    "bad-length": Raw(raw=b"HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nok"),
    "two-lengths": Raw(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok"),
    "resets-in-body": Raw(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", end="resets"),
    "closes-in-body": Raw(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok"),
    "bad-chunk": Raw(raw=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n", end="stays"),
    "reset": UpstreamReply(fail="reset"),
    "reset-after-head": UpstreamReply(body=(b"one", b"two"), reset_after=0),
    "reset-after-one": UpstreamReply(body=(b"one", b"two"), reset_after=1),
}

_RETRIES = {
    # the EPP's list, and what the endpoints do
    "503-first": (("a", "b"), {"a": UpstreamReply(status=503, body=(b"busy",)), "b": _JSON}),
    "503-twice": (("a", "b", "c"), {"a": UpstreamReply(status=503), "b": UpstreamReply(status=503), "c": _JSON}),
    "503-all": (
        ("a", "b"),
        {"a": UpstreamReply(status=503, body=(b"a",)), "b": UpstreamReply(status=503, body=(b"b",))},
    ),
    "dead-first": (("dead", "c"), {"c": _JSON}),
    "dead-only": (("dead", "dead"), {}),
    "reset-first": (("a", "b"), {"a": UpstreamReply(fail="reset"), "b": _JSON}),
    "reset-all": (("a", "b"), {"a": UpstreamReply(fail="reset"), "b": UpstreamReply(fail="reset")}),
    "500-first": (("a", "b"), {"a": UpstreamReply(status=500), "b": _JSON}),
}


_WAITED_FOR = (
    "sets-length-too-long",
    "response-trailers-before-the-end",
    "reply-then-closes",
    "leaves-open",
    "leaves-request-open",
)
"""Behaviours after which something is waited for as long as the client likes."""


def cases() -> dict[str, Case]:
    """The whole matrix, by id."""
    found: dict[str, Case] = {}
    groups = (_requests, _replies, _behaviours, _grpc_clients, _retries, _configurations, _aborts, _subsets)
    for case in (case for group in groups for case in group()):
        assert case.id not in found, case.id
        found[case.id] = case
    return found


def _requests() -> Iterator[Case]:
    for mode in MODES:
        for name, request in REQUESTS.items():
            for http in (1, 2):
                if http == 2 and name in _HTTP1_ONLY:
                    continue
                # a body too large to buffer ends the exchange before an answer to the headers, or after it: make sure
                overflows = name.startswith("large") and mode in ("buffered", "mixed") and http == 1
                yield Case(
                    id=f"request/{name}/{mode}/http{http}",
                    gateway=mode,
                    request=dataclasses.replace(request, http=http),
                    replies={"b": _JSON},
                    behaviour=FOUND["silent-on-request" if overflows else "right"],
                    merged=name in ("big", "large", "large-chunked"),
                )
    for mode in ("fds", "streamed"):
        for name, request in PACED.items():
            for http in (1, 2):
                yield Case(
                    id=f"request/{name}/{mode}/http{http}",
                    gateway=mode,
                    request=dataclasses.replace(request, http=http),
                    replies={"b": _JSON},
                    paced=True,
                )


def _replies() -> Iterator[Case]:
    for mode in MODES:
        for name, reply in REPLIES.items():
            for http in (1, 2):
                yield Case(
                    id=f"reply/{name}/{mode}/http{http}",
                    gateway=f"{mode}-one" if reply.fail or isinstance(reply, Raw) or reply.status == 503 else mode,
                    request=dataclasses.replace(REQUESTS["post"], http=http),
                    replies={"b": reply},
                    merged=name in ("large", "big"),
                )
        yield Case(
            id=f"reply/to-get-sse/{mode}/http1", gateway=mode, request=REQUESTS["get"], replies={"b": REPLIES["sse"]}
        )
    for mode in ("fds", "streamed"):
        for http in (1, 2):
            yield Case(
                id=f"reply/early/{mode}/http{http}",
                gateway=mode,
                request=dataclasses.replace(PACED["paced"], http=http),
                replies={"b": dataclasses.replace(json_reply({"early": True}, status=400), early=True)},
                behaviour=FOUND["holds-body"],
                paced=True,
            )


def _behaviours() -> Iterator[Case]:
    for name, behaviour in FOUND.items():
        for mode in behaviour.modes.split():
            hasty = name.startswith("no-answer")
            steers = "one" if behaviour.fallback or name.startswith(("closes", "replaces")) else ""
            gateway = "-".join(filter(None, (mode, "hasty" if hasty else steers)))
            request = REQUESTS["trailers" if name == "sets-trailers" else "post"]
            for http in (1, 2) if mode == "fds" else (1,):
                yield Case(
                    id=f"behaviour/{name}/{mode}/http{http}",
                    gateway=gateway,
                    request=dataclasses.replace(request, http=http),
                    replies={"b": REPLIES["sse" if name == "immediate-on-response-body" else "json"]},
                    behaviour=behaviour,
                    stalls=name == "immediate-on-response-body",
                    deadline=0.4 if name in _WAITED_FOR else 5.0,
                )
    lenient = ("wrong-oneof", "two-headers-answers", "garbage", "closes-at-once", "grpc-unavailable", "no-answer",
               "immediate-503", "header-with-newline", "no-answer-to-body", "extra-body-answer",
               "wrong-oneof-on-response", "no-answer-to-response-headers", "grpc-on-response", "resets",
               "changes-body-not-length", "empty-answer", "too-many-headers", "reply-body", "reply-body-first",
               "reply-twice", "reply-then-breaks", "reply-without-status", "reply-status-99")  # fmt: skip
    for name in lenient:
        for mode in FOUND[name].modes.split():
            for kind in ("post", "get"):
                yield Case(
                    id=f"open/{name}/{mode}/{kind}",
                    gateway=f"{mode}-open",
                    request=REQUESTS[kind],
                    replies={"b": _JSON},
                    behaviour=FOUND[name],
                )
    for name in ("closes-at-once", "grpc-unavailable", "wrong-oneof", "immediate-503", "no-answer"):
        for mode in FOUND[name].modes.split():
            yield Case(
                id=f"behaviour-to-get/{name}/{mode}",
                gateway=f"{mode}-hasty",
                request=REQUESTS["get"],
                replies={"b": _JSON},
                behaviour=FOUND[name],
            )
    for name, behaviour in SWAPPED.items():
        for mode in MODES:
            yield Case(
                id=f"swapped/{name}/{mode}",
                gateway=f"{mode}-one",
                request=REQUESTS["trailers" if "for-request_trailers" in name else "post"],
                replies={"b": REPLIES["trailers" if "for-response_trailers" in name else "json"]},
                behaviour=behaviour,
                deadline=0.5 if mode == "fds" and "trailers-for" in name else 5.0,
            )
    for name in ("no-answer-ever", "never-ends-body"):
        behaviour = FOUND["no-answer" if name == "no-answer-ever" else name]
        yield Case(
            id=f"behaviour/{name}/fds/http1",
            gateway="fds",
            request=REQUESTS["post"],
            replies={"b": _JSON},
            behaviour=behaviour,
            deadline=0.3,
        )


def _grpc_clients() -> Iterator[Case]:
    """Which clients get a refusal as those of gRPC do."""
    for kind in ("", "+proto", "+", "-web", "-web+proto", "x", "; charset=utf-8"):
        for http in (1, 2):
            yield Case(
                id=f"grpc/application-grpc{kind}/http{http}",
                gateway="fds",
                request=HttpRequest(
                    body=_PROMPT, headers=((b"content-type", b"application/grpc%b" % kind.encode()),), http=http
                ),
                replies={"b": _JSON},
                behaviour=FOUND["immediate-503"],
            )
    for name in (
        *("immediate-grpc-status", "immediate-200-grpc-status", "immediate-grpc-header", "immediate-grpc-ok"),
        *("immediate-forbidden-headers", "immediate-bad-headers", "immediate-without-status", "immediate-999"),
        "immediate-odd-text",
    ):
        yield Case(
            id=f"grpc/{name}",
            gateway="fds",
            request=HttpRequest(body=_PROMPT, headers=((b"content-type", b"application/grpc"),), http=2),
            replies={"b": _JSON},
            behaviour=FOUND[name],
        )


def _retries() -> Iterator[Case]:
    for name, (pick, replies) in _RETRIES.items():
        for mode in MODES:
            yield Case(id=f"retry/{name}/{mode}", gateway=mode, request=REQUESTS["post"], replies=replies, pick=pick)
        for gateway in ("by-header", "by-metadata", "header-first", "no-retry", "one-retry", "not-reported"):
            if name in ("503-all", "reset-all", "dead-only") and gateway.startswith("by-"):
                continue  # one list, walked to its end: then Envoy goes round-robin from a random place
            yield Case(
                id=f"retry/{name}/{gateway}", gateway=gateway, request=REQUESTS["post"], replies=replies, pick=pick
            )
    for kind in ("get", "trailers", "big", "large"):
        pick, replies = _RETRIES["503-first"]
        yield Case(
            id=f"retry/503-first/fds/{kind}",
            gateway="fds",
            request=REQUESTS[kind],
            replies=replies,
            pick=pick,
            merged=kind in ("big", "large"),
        )
    for mode in MODES:
        for lenient in ("down", "down-open"):
            for kind in ("get", "post"):
                yield Case(
                    id=f"down/{mode}/{lenient}/{kind}",
                    gateway=f"{mode}-{lenient}",
                    request=REQUESTS[kind],
                    replies={"b": _JSON},
                )
        for kind in ("get", "head", "post", "trailers", "empty"):
            yield Case(
                id=f"refused/{mode}/{kind}", gateway=f"{mode}-refused", request=REQUESTS[kind], replies={"b": _JSON}
            )


def _configurations() -> Iterator[Case]:
    for gateway in (
        "headers-only", "headers-and-trailers", "request-only", "buffered-no-headers", "nothing-received",
        "nothing-forwarded", "not-reported", "early-body", "attributes", "by-header", "by-metadata", "dial-header",
        "dial-metadata",
    ):  # fmt: skip
        for kind in ("get", "post", "trailers", "empty"):
            for shape in ("json", "sse", "trailers"):
                yield Case(
                    id=f"config/{gateway}/{kind}/{shape}",
                    gateway=gateway,
                    request=REQUESTS[kind],
                    replies={"b": REPLIES[shape]},
                )
    for name in ("wrong-oneof", "grpc-unavailable", "header-with-newline"):
        yield Case(
            id=f"config/status-503/{name}",
            gateway="status-503",
            request=REQUESTS["post"],
            replies={"b": _JSON},
            behaviour=FOUND[name],
        )
    for gateway in ("headers-only", "headers-and-trailers", "request-only"):
        for kind in ("get", "post"):
            yield Case(
                id=f"config/{gateway}/reply-body/{kind}",
                gateway=gateway,
                request=REQUESTS[kind],
                replies={"b": _JSON},
                behaviour=FOUND["reply-body"],
            )
    for gateway in ("headers-only", "headers-and-trailers", "request-only"):
        for kind, request in LATE.items():
            for http in (1, 2):
                yield Case(
                    id=f"config/{gateway}/reply-open/{kind}/http{http}",
                    gateway=gateway,
                    request=dataclasses.replace(request, http=http),
                    replies={"b": _JSON},
                    behaviour=FOUND["reply-open"],
                    deadline=0.4,
                )
    for gateway in ("request-only", "response-headers-only"):
        for http in (1, 2):
            yield Case(
                id=f"config/{gateway}/early/http{http}",
                gateway=gateway,
                request=dataclasses.replace(_CONTINUED, http=http),
                replies={"b": _EARLY},
                paced=True,
            )
        for kind in ("get", "post"):
            yield Case(
                id=f"config/{gateway}/trailers-after-headers/{kind}",
                gateway=gateway,
                request=REQUESTS[kind],
                replies={"b": _JSON},
                behaviour=FOUND["trailers-after-headers"],
            )
    for gateway in ("by-metadata", "header-first"):
        yield Case(
            id=f"config/{gateway}/header-differs",
            gateway=gateway,
            request=REQUESTS["post"],
            replies={"b": _JSON},
            behaviour=FOUND["header-differs"],
        )
    for gateway in ("dial-header", "dial-metadata"):
        for name in ("picks-nothing", "endpoint-garbage", "endpoint-without-port", "header-only", "metadata-only"):
            yield Case(
                id=f"config/{gateway}/{name}",
                gateway=gateway,
                request=REQUESTS["post"],
                replies={"b": _JSON},
                behaviour=FOUND[name],
            )
        for pick in (("dead",), ("b", "c")):
            yield Case(
                id=f"config/{gateway}/pick-{'-'.join(pick)}",
                gateway=gateway,
                request=REQUESTS["post"],
                replies={"b": _JSON},
                pick=pick,
            )


def _aborts() -> Iterator[Case]:
    for mode in MODES:
        for http in (1, 2):
            for at in ("request", "response-headers", "response-body"):
                if mode == "buffered" and at != "request":
                    continue  # the whole response comes at once there
                if mode in ("buffered", "mixed") and at == "request" and http == 1:
                    continue  # the end is a separate flush there, and nothing comes through before it
                body = (Chunk(data=_PROMPT, await_echo=at == "request"),)
                post = dataclasses.replace(REQUESTS["post"], body=body, chunked=True, http=http)
                yield Case(
                    id=f"abort/{at}/{mode}/http{http}",
                    gateway=mode,
                    request=dataclasses.replace(post, abort=Abort(at=at)),
                    replies={"b": UpstreamReply(fail="never") if at == "request" else REPLIES["sse"]},
                    stalls=True,
                    paced=True,
                )
    for mode in ("fds", "streamed"):
        for http in (1, 2):
            yield Case(
                id=f"abort/request-body/{mode}/http{http}",
                gateway=mode,
                request=dataclasses.replace(PACED["paced"], http=http, abort=Abort(at="request-body", after=2)),
                replies={"b": _JSON},
                paced=True,
            )


def _subsets() -> Iterator[Case]:
    hints = {"list": ["b", "c"], "one": ["b"], "empty": [], "string": "b", "null-in-list": ["b", None], "number": 1.5}
    for mode in MODES:
        for name, hint in hints.items():
            yield Case(
                id=f"subset/{name}/{mode}", gateway=mode, request=REQUESTS["post"], replies={"b": _JSON}, subset=hint
            )
