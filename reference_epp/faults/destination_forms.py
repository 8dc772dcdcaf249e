"""Faults of how the destination is written where it names the right endpoints."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from reference_epp.conversation import Conversation
from reference_epp.deviations import WITH_LISTS, fault
from reference_epp.picker import Picked

if TYPE_CHECKING:
    from ext_proc.messages import CommonResponse


@fault(
    "header-set-before",
    breaks="EPP-DEST-05",
    why="The header is set twice, and only the second time to the endpoint that the metadata has.",
)
class HeaderSetBefore(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        if len(decision.endpoints) > 1:
            super().destination_header(common, Picked(decision.endpoints[::-1]))
        super().destination_header(common, decision)


@fault(
    "ipv6-written-out",
    breaks="EPP-DEST-04",
    why="IPv6 addresses are written with all of their digits, by which Envoy finds no host.",
    effect="warn",
)
class Ipv6WrittenOut(Conversation):
    def destination(self, decision: Picked) -> str:
        text = super().destination(decision)
        for endpoint in decision.endpoints:
            if ":" in endpoint.ip:
                text = text.replace(endpoint.ip, ipaddress.ip_address(endpoint.ip).exploded)
        return text


@fault(
    "endpoint-listed-twice",
    breaks="EPP-DEST-04",
    why="The first endpoint of a list is its last one, too.",
    versions=WITH_LISTS,
    effect="warn",
)
class EndpointListedTwice(Conversation):
    def destination(self, decision: Picked) -> str:
        return f"{super().destination(decision)},{decision.endpoints[0]}"
