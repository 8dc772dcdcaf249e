"""Faults in what the EPP makes of the report of the endpoint that served."""
# fmt: off

from __future__ import annotations

import os
from typing import Any

from reference_epp.changes import changed, closing
from reference_epp.conversation import Conversation
from reference_epp.deviations import DEAD, ENDED, SILENT, WITH_SERVED, fault
from reference_epp.endpoints import parse_endpoint
from reference_epp.names import SERVED
from reference_epp.picker import Picked, Picker


class _LooksAtServed(Conversation):
    """Answers with `answer` after the report of an endpoint for which `look` is true."""

    answer: Any = ()
    looked = False

    def note_served(self, metadata: Any) -> None:
        namespace = self.epp.metadata_namespace
        if namespace in metadata.filter_metadata and SERVED in metadata.filter_metadata[namespace].fields:
            self.looked = self.look(metadata.filter_metadata[namespace].fields[SERVED])
        super().note_served(metadata)

    def look(self, _: Any) -> bool:
        """Look at the value that the data plane reported."""
        return False

    def emit(self, actions: Any) -> Any:
        return list(self.answer) if self.looked else super().emit(actions)


def _unknown(_: Any, c: Any, value: Any) -> bool:
    try:
        return parse_endpoint(value.string_value) not in c.epp.picker.pool.endpoints
    except ValueError:
        return False


def _another(_: Any, c: Any, value: Any) -> bool:
    first = c.decision.endpoints[0].text if isinstance(c.decision, Picked) else None
    return value.WhichOneof("kind") == "string_value" and first not in (None, value.string_value)


def _another_pod(_: Any, c: Any, value: Any) -> bool:
    return value.string_value in {one.text for one in c.epp.picker.pool.endpoints} and _another(_, c, value)


fault("odd-served-is-fatal", "EPP-SRVD-01",
      "A served endpoint that is no string ends the process.",
      changed(_LooksAtServed, look=lambda _, __, value: value.WhichOneof("kind") != "string_value" and os._exit(70)),
      also=DEAD, versions=WITH_SERVED)
fault("unknown-served-unanswered", "EPP-SRVD-01",
      "A response served by an endpoint that is not in the pool is never answered.",
      changed(_LooksAtServed, look=_unknown), also=SILENT, versions=WITH_SERVED)
fault("other-served-is-an-error", "EPP-SRVD-01",
      "A response served by another endpoint than the first of the list ends the stream with a gRPC error.",
      changed(_LooksAtServed, answer=closing(), look=_another), also=ENDED, versions=WITH_SERVED)
fault("another-pod-served-is-an-error", "EPP-SRVD-01",
      "Only the first pod is picked; a response served by another one of the pool ends the stream.",
      changed(_LooksAtServed, answer=closing(), look=_another_pod),
      changed(Picker, rank=lambda _, __, candidates, ___: list(candidates[:1])), also=ENDED, versions=WITH_SERVED)
