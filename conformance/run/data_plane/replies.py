"""From a scenario's `Reply` to the upstream that plays it: a fake model server, told what to answer, or a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from conformance.scenario.replies import FAILING, chunks_of, headers_of, pairs
from conformance.scenario.schema import Reply
from fake_modelserver import Reply as ServerReply
from fake_modelserver.messages import Response
from fake_proxy.actions import OpenUpstream
from fake_proxy.scripted import ScriptedUpstream, UpstreamReply
from fake_proxy.upstream import Attempt, HttpUpstream, Upstream, UpstreamEvents

INLINE = 8192
"""Bytes of body that a model server is told in the script header; a larger one comes from a scripted upstream."""

MayDial = Callable[[str], bool]
"""Whether an endpoint (`ip:port`) may be connected to."""


class ModelServers:
    """The pods, over HTTP; `script` adds a header that tells the pod what to answer to an attempt."""

    def __init__(self, script: Callable[[int], ServerReply | None], may_dial: MayDial) -> None:
        self._script = script
        self._http = HttpUpstream(may_dial=may_dial)

    def open(self, opening: OpenUpstream, events: UpstreamEvents) -> Attempt:
        """Forward the attempt. The header is added behind the EPP's back, so that no EPP can lose it."""
        reply = self._script(opening.attempt)
        if reply is not None:
            opening = opening._replace(headers=[*opening.headers, reply.to_header()])
        return self._http.open(opening, events)


def upstream_for(reply: Reply, fail_first: int, may_dial: MayDial) -> Upstream:
    """The upstream of one exchange. The first `fail_first` attempts are answered with 503, the next as `reply` says.

    Of the endpoints that the target names, those are dialled that `may_dial` has: a request may carry secret headers.
    """
    if reply.source == "local-reply":
        return ScriptedUpstream(UpstreamReply(fail="connect-failed"))
    if reply.source == "never":
        return ScriptedUpstream(UpstreamReply(fail="never"))
    if reply == Reply():
        return ModelServers(lambda attempt: ServerReply(status=FAILING) if attempt <= fail_first else None, may_dial)
    chunks = chunks_of(reply)
    if reply.source == "scripted" or (sum(map(len, chunks)) > INLINE and reply.size is None):
        return ScriptedUpstream(_scripted(reply, chunks))
    scripted = _served(reply, chunks)
    return ModelServers(lambda attempt: ServerReply(status=FAILING) if attempt <= fail_first else scripted, may_dial)


def scripted_reply(reply: Reply, mark: bytes = b"") -> UpstreamReply:
    """What a model server answers to `reply` where there is no network, whatever its source.

    `mark` is in a body that is made here, so that it can be told from those of other requests; not in one that a
    scenario gives. It may be split in two, or be compressed with the body.
    """
    failures: dict[str, Literal["connect-failed", "never"]] = {"local-reply": "connect-failed", "never": "never"}
    if reply.source in failures:
        return UpstreamReply(fail=failures[reply.source])
    return _scripted(reply, chunks_of(reply, mark))


def model_server_reply(reply: Reply) -> ServerReply | None:
    """What a model server is told to answer; None if it answers by itself."""
    return None if reply == Reply() else _served(reply, chunks_of(reply))


def response_for(reply: Reply) -> Response | None:
    """What a pod answers behind a data plane that is not ours; None: what it answers by itself."""
    if reply == Reply():
        return None
    chunks = chunks_of(reply)
    return Response(
        status=reply.status,
        headers=headers_of(reply),
        body=chunks[0] if len(chunks) == 1 else b"",
        chunks=chunks if len(chunks) > 1 else None,
        trailers=pairs(reply.trailers or ()),
        delay=reply.delay_seconds,
        gap=reply.gap_seconds,
    )


def _scripted(reply: Reply, chunks: tuple[bytes, ...]) -> UpstreamReply:
    return UpstreamReply(
        status=reply.status,
        headers=headers_of(reply),
        body=chunks,
        trailers=pairs(reply.trailers or ()),
        early=reply.early,
        coalesced=reply.coalesced,
    )


def _served(reply: Reply, chunks: tuple[bytes, ...]) -> ServerReply:
    generated = reply.size is not None and reply.split is None and not reply.cut
    pieces = len(chunks) > 1 or reply.cut
    return ServerReply(
        status=reply.status,
        headers=headers_of(reply),
        trailers=pairs(reply.trailers or ()),
        body=b"".join(chunks) if not pieces and not generated else None,
        chunks=chunks if pieces and not generated else None,
        size=reply.size if generated else None,
        delay=reply.delay_seconds,
        gap=reply.gap_seconds,
        cut=reply.cut,
    )
