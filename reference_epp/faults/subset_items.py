"""Faults in when a subset is read, which of its items are, and how they are compared with the pool."""
# fmt: off

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from reference_epp.changes import changed, eligible
from reference_epp.conversation import Conversation
from reference_epp.faults.subset import BODYLESS_TOO, OUTSIDE, hint, subset_fault
from reference_epp.picker import Decision, Picked, Picker, Request, inside_subset

GIVEN = {"EPP-SUB-02": "an endpoint is given where none is left"}


def _fitting(fits: Callable[[str, str], bool]) -> type[Picker]:
    """Takes endpoints whose text fits an item of the subset."""
    return eligible(lambda p, request, found: found if request.subset is None else [
        one for one in p.pool.endpoints if any(fits(one.text, item.text) for item in request.subset)])


def _apart(p: Any, request: Request, found: Any) -> Any:
    if request.subset is None:
        return found
    addresses, ports = {item.ip for item in request.subset}, {item.port for item in request.subset}
    return [one for one in p.pool.endpoints if one.ip in addresses and one.port in ports]


def _ipv6_by_address(p: Any, request: Request, found: Any) -> Any:
    allowed = {item.ip for item in request.subset or () if ":" in item.ip}
    return [one for one in p.pool.endpoints if one in found or one.ip in allowed]


def _first_port(up: Any, p: Any, request: Request) -> Decision:
    decision: Decision = up(request)
    if request.body or not isinstance(decision, Picked):
        return decision
    pods = dict.fromkeys(one.ip for one in decision.endpoints)
    return Picked(tuple(min(one for one in p.pool.endpoints if one.ip == ip) for ip in pods))


def _has_ipv6(request: Request) -> list[bool]:
    return [":" in item.ip for item in request.subset or ()]


subset_fault("subset-port-by-prefix", "EPP-SUB-06",
             "An item of the subset fits every endpoint that begins with it: port 800 allows port 8000.",
             _fitting(str.startswith), also=OUTSIDE | GIVEN)
subset_fault("subset-address-by-its-end", "EPP-SUB-02",
             "An item fits every endpoint that ends with it: 27.0.0.1:8000 allows 127.0.0.1:8000.",
             _fitting(str.endswith))
subset_fault("ipv6-subset-opens-the-pool", "EPP-SUB-07",
             "A subset with an IPv6 endpoint allows the whole pool, of which one is picked at random.",
             changed(eligible(lambda p, request, found: p.pool.endpoints if any(_has_ipv6(request)) else found),
                     rank=lambda _, __, candidates, ___: random.sample(list(candidates), len(candidates))),
             also=OUTSIDE | GIVEN | BODYLESS_TOO)
subset_fault("subset-address-and-port-apart", "EPP-SUB-06",
             "An endpoint is in the subset if one item has its address and another its port.",
             eligible(_apart), also=OUTSIDE)
subset_fault("none-of-several-means-all", "EPP-SUB-02",
             "A subset of several endpoints, of which the pool has none, allows the whole pool.",
             eligible(lambda p, request, found: found or (p.pool.endpoints if len(request.subset or ()) > 1 else ())))
subset_fault("whole-pool-means-none", "EPP-SUB-02",
             "A subset that leaves out no endpoint of a pool of several is taken for no choice, and gets 503.",
             eligible(lambda p, request, found: () if request.subset is not None
                      and len(found) == len(p.pool.endpoints) > 1 else found), also=BODYLESS_TOO)
subset_fault("bodyless-on-the-first-port", "EPP-SUB-08",
             "A request without a body gets the first port of its pod, whichever the subset names.",
             changed(Picker, pick=_first_port))
subset_fault("ipv6-subset-by-address", "EPP-SUB-06",
             "An IPv6 item of the subset is split at its last colon, and its port is ignored.",
             eligible(_ipv6_by_address), also=GIVEN)
subset_fault("unknown-ipv6-opens-the-pool", "EPP-SUB-02",
             "A subset of IPv6 endpoints that the pool does not have allows the whole pool.",
             eligible(lambda p, request, found:
                      found or (p.pool.endpoints if request.subset and all(_has_ipv6(request)) else ())))
subset_fault("subset-forgotten-for-sheddable", "EPP-SUB-01",
             "A sheddable request whose subset has room gets an endpoint of the whole pool.",
             eligible(lambda p, request, found:
                      p.pool.endpoints if request.sheddable and found and not p.saturated(found) else found),
             also=BODYLESS_TOO)

# -- which items are read


def _some(part: slice) -> type[Conversation]:
    """Reads a part of the hint's list."""
    def act(up: Any, c: Any, kind: str, metadata: Any) -> None:
        value = hint(c, metadata)
        if value is not None and len(value.list_value.values) > 1:
            read = [item.string_value for item in value.list_value.values][part]
            del value.list_value.values[:]
            for item in read:
                value.list_value.values.add(string_value=item)
        up(kind, metadata)

    return changed(Conversation, read_metadata=act)


def _read_if(when: Any) -> type[Conversation]:
    """Reads the metadata of a request only if `when(conversation, filter_metadata)` is true."""
    def act(up: Any, c: Any, kind: str, metadata: Any) -> None:
        if not kind.startswith("request") or when(c, metadata.filter_metadata):
            up(kind, metadata)

    return changed(Conversation, read_metadata=act)


def _has_one_key(c: Any, metadata: Any) -> bool:
    own = metadata.get(c.epp.subset_namespace)
    return own is None or len(own.fields) == 1


subset_fault("last-of-subset-lost", "EPP-SUB-05", "The last item of a list of several is lost.", _some(slice(-1)))
subset_fault("long-subset-cut", "EPP-SUB-05", "Only the first 600 members of a subset are read.", _some(slice(600)))
subset_fault("subset-of-the-best-ten", "EPP-SUB-02",
             "The subset is applied to the ten best endpoints: in a larger pool, an eligible one gets 503.",
             eligible(lambda p, request, _: inside_subset(
                 p.rank(p.pool.endpoints, request)[:10] if p.pool.endpoints else (), request)))
subset_fault("sixty-four-endpoints", "EPP-SUB-02",
             "Only the first 64 endpoints of the pool are known: a subset of a later one gets 503.",
             eligible(lambda p, request, _: inside_subset(p.pool.endpoints[:64], request)))
subset_fault("subset-beside-other-namespaces-ignored", "EPP-SUB-01",
             "The hint is read only if no other namespace comes with it.",
             _read_if(lambda _, metadata: len(metadata) == 1))
subset_fault("subset-beside-other-keys-ignored", "EPP-SUB-01",
             "The hint is read only if its namespace has no other key.", _read_if(_has_one_key))
