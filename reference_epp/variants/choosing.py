"""Variants that choose endpoints, drop requests or queue them in another way."""
# fmt: off

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ext_proc.messages import ProcessingResponse
from reference_epp.changes import changed, eligible, method, path
from reference_epp.conversation import Conversation
from reference_epp.deviations import WITH_LISTS, WITH_SUBSET, variant
from reference_epp.endpoints import Endpoint
from reference_epp.picker import NOT_FOUND, SERVICE_UNAVAILABLE, Decision, Picked, Picker, Refused, Request
from reference_epp.service import Service
from reference_epp.subset import read_subset


def _picking(change: Any) -> type[Picker]:
    """Picks `change(picker, request, endpoints)` where the correct EPP picks `endpoints`."""
    def act(up: Any, picker: Any, request: Request) -> Decision:
        decision: Decision = up(request)
        return Picked(change(picker, request, decision.endpoints)) if isinstance(decision, Picked) else decision

    return changed(Picker, pick=act)


variant("lists-all-endpoints",
        "Every eligible endpoint is in the list, best first; a list has no upper limit.",
        _picking(lambda p, request, _: tuple(p.rank(p.eligible(request), request))),
        versions=WITH_LISTS, noted={"EPP-DEST-09": "3 endpoints in a value"})
variant("names-one-endpoint",
        "There is never more than one endpoint; more are allowed, not asked for.",
        _picking(lambda _, __, endpoints: endpoints[:1]), without=("fallbackLists",))
variant("sticky",
        "The first eligible endpoint gets everything; how well an EPP balances is not in the protocol.",
        changed(Picker, rank=lambda _, __, candidates, ___: list(candidates)))
variant("prefers-the-busiest",
        "The most loaded endpoint comes first, which is unwise and allowed.",
        changed(Picker, score=lambda up, _, endpoint, request: -up(endpoint, request)))
variant("ipv4-only",
        "Endpoints with an IPv6 address are left out of the pool; its profile says so.",
        eligible(lambda _, __, found: [one for one in found if ":" not in one.ip]), claims={"ipv6": False})


@variant("shuffled-lists",
         "Equal requests get lists in another order each time; the order is the preference of the moment.",
         versions=WITH_LISTS)
class ShuffledLists(Picker):
    flip = False

    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        self.flip = not self.flip
        ranked = super().rank(candidates, request)
        return ranked[::-1] if self.flip else ranked


# -- shedding


def _busy(_: Any, picker: Any, candidates: Sequence[Endpoint]) -> bool:
    known = [picker.readings.get(one) for one in candidates]
    return all(one is not None and (one.queued >= 3 or one.kv_cache >= 0.5) for one in known)


def _shed_any(up: Any, picker: Any, request: Request) -> Any:
    candidates = picker.eligible(request)
    return picker.shed(request) if candidates and picker.saturated(candidates) else up(request)


variant("never-sheds",
        "Sheddable requests get an endpoint under any load; dropping them is the EPP's choice.",
        changed(Picker, saturated=lambda *_: False), without=("sheds",))
variant("sheds-any-request",
        "While all pods are as busy as makes others shed, every request is dropped with 429, marked or not.",
        changed(Picker, pick=_shed_any), versions=WITH_SUBSET)
variant("sheds-early",
        "The same while three requests wait at every pod, or half of its KV cache is in use.",
        changed(Picker, pick=_shed_any, saturated=_busy), versions=WITH_SUBSET)
variant("filters-early",
        "With a hint, pods as busy as that are left out, and nothing may be left of it.",
        changed(eligible(lambda p, request, found: found if request.subset is None
                         else [one for one in found if not p.saturated([one])]), saturated=_busy),
        versions=WITH_SUBSET)


# -- queues, paths, hints


async def _send_late(up: Any, _: Any, stream: Any, answer: Any) -> None:
    if isinstance(answer, ProcessingResponse) and answer.immediate_response.status.code == SERVICE_UNAVAILABLE:
        await asyncio.sleep(0.2)
    await up(stream, answer)


def _four_paths(up: Any, c: Any, body: bytes) -> Decision:
    known = (b"/v1/completions", b"/v1/chat/completions", b"/v1/embeddings", b"/v1/models")
    decision: Decision = up(body)
    other = method(c) == b"POST" and path(c).startswith(b"/") and path(c) not in known
    return Refused(NOT_FOUND, "no such path") if other and isinstance(decision, Picked) else decision


def _also_read(up: Any, c: Any, kind: str, metadata: Any) -> None:
    up(kind, metadata)
    if kind.startswith("request") and c.subset is None:
        c.subset = read_subset(metadata, c.epp.metadata_namespace)


variant("four-paths",
        "A POST to another path than completions, chats, embeddings and models gets 404.",
        changed(Conversation, choose=_four_paths))
variant("queues-briefly",
        "A request without candidates waits for some to appear before it is refused.",
        changed(Service, send=_send_late), claims={"queues": True})
variant("subset-in-the-destination-namespace",
        "The subset's key is honoured in the destination's namespace as well, as a configuration may ask for.",
        changed(Conversation, read_metadata=_also_read),
        versions=WITH_SUBSET, noted={"EPP-SUB-12": "503, with the key in another namespace"})


@variant("queues-until-ready",
         "A request is held while no endpoint is ready, or all are saturated, for a second at most.",
         claims={"queues": True})
class QueuesUntilReady(Service):
    deadlines: WeakKeyDictionary[Conversation, float] = WeakKeyDictionary()

    async def read(self, stream: Any, messages: Any, conversation: Conversation) -> Any:
        message = await super().read(stream, messages, conversation)
        if message is not None and conversation.decision is None:
            deadline = self.deadlines.setdefault(conversation, time.monotonic() + 1)
            while self.full() and stream.ended is None and time.monotonic() < deadline:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
        return message

    def full(self) -> bool:
        """True if no endpoint can take a request now."""
        picker = self.epp.picker
        return not picker.pool.endpoints or picker.saturated(picker.pool.endpoints)
