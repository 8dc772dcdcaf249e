"""A kind of request, made ready: exchanges of one shape differ in their request id and in nothing else.

The id goes wherever a request may differ from others: `x-request-id` and, as the prompt, into the body; and into the
body of the model server's answer, so that one that was given to another request is seen. It always has the same length,
so that lengths do not depend on it.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.scenario.replies import FILLER
from fake_proxy.client import Chunk, HttpRequest
from fake_proxy.config import ProxyConfig
from fake_proxy.scripted import UpstreamReply
from fake_proxy.stimulus import Stimulus

PLACEHOLDER = str(uuid.UUID(int=0)).encode()
"""Where the id of each exchange goes in the bodies of a shape's request and reply."""

_FILLER = FILLER * 3875
"""What fills up large bodies, as much as EPPs send in a piece: so many bytes have the id once."""


def with_ids(pieces: Sequence[bytes]) -> tuple[bytes, ...]:
    """The body in `pieces`, whose filler has the id again and again if it had it at all, so that each piece of it is
    its own. It is cut beside an id in place of in it: one that is cut can't be filled in."""
    body = b"".join(pieces)
    if PLACEHOLDER in body:
        body = body.replace(_FILLER, PLACEHOLDER + _FILLER[len(PLACEHOLDER) :])
    ids = [found.span() for found in re.finditer(PLACEHOLDER, body)]
    ends = [_beside(end, ids) for end in itertools.accumulate(map(len, pieces))]
    return tuple(body[begin:end] for begin, end in itertools.pairwise([0, *ends]) if begin < end)


def _beside(cut: int, ids: Sequence[tuple[int, int]]) -> int:
    edges: tuple[int, ...] = next((one for one in ids if one[0] < cut < one[1]), (cut,))
    return min(edges, key=lambda edge: abs(edge - cut))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestShape:
    """What is asked, over which data plane, and what the model server does.

    `request` and `reply` have `PLACEHOLDER` where the id of an exchange belongs in their bodies. `fail_first` attempts
    are answered with 503, later ones with `reply`, which begins `service_time` seconds after the request is complete.
    `note` is what judges can't read off the messages.
    """

    name: str
    request: HttpRequest
    config: ProxyConfig
    stimulus: Stimulus = field(default_factory=Stimulus)
    reply: UpstreamReply = field(default_factory=UpstreamReply)
    fail_first: int = 0
    service_time: float = 0.0
    note: Mapping[str, Any] = field(default_factory=dict)
    subset: tuple[str, ...] = ()
    """The items of its subset hint."""
    answers: tuple[str, ...] = ()
    """Kinds of answer that are right beside those that the rules allow (see `Expectation`)."""

    def request_of(self, own: bytes) -> HttpRequest:
        """The request of the exchange with the id `own`."""
        body = self.request.body
        if isinstance(body, bytes):
            filled: bytes | tuple[Chunk, ...] = body.replace(PLACEHOLDER, own)
        else:
            filled = tuple(dataclasses.replace(one, data=one.data.replace(PLACEHOLDER, own)) for one in body)
        without = self.request.request_id == ""
        return dataclasses.replace(self.request, body=filled, request_id="" if without else own.decode())

    def reply_to(self, attempt: int, own: bytes) -> UpstreamReply:
        """What the model server answers to the attempt with this number, from 1, of the exchange with the id `own`."""
        if attempt <= self.fail_first:
            return UpstreamReply(status=503)
        return dataclasses.replace(self.reply, body=tuple(one.replace(PLACEHOLDER, own) for one in self.reply.body))


_COUNT = 38
"""Bits of the count of requests in one process. Those above, of 48 in all, are the number of the process."""


class RequestIds:
    """Ids of requests that look like UUIDs: a beginning that no other run has, then a count.

    Processes that share a run share its `head`, so that each knows the ids of the others for those of the run; each
    has its number among them, `process`, which is below 1,024.
    """

    def __init__(self, process: int = 0, head: str = "") -> None:
        self.head = head or str(uuid.uuid4())[:24]
        self._numbers = itertools.count(process << _COUNT)
        self.pattern = re.compile(self.head.encode() + b"[0-9a-f]{12}")
        """Finds ids of this run."""

    def __iter__(self) -> Iterator[bytes]:
        head = self.head
        return (f"{head}{number:012x}".encode() for number in self._numbers)

    def strangers(self, raw: bytes, own: bytes) -> tuple[bytes, ...]:
        """The ids of this run in `raw` that are not `own`, each once."""
        return tuple(dict.fromkeys(found for found in self.pattern.findall(raw) if found != own))
