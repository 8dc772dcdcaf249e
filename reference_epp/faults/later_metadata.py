"""Faults of destinations in metadata that comes when the header was sent (section Destination Endpoint)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reference_epp.conversation import Conversation
from reference_epp.deviations import fault
from reference_epp.epp import Action, Close
from reference_epp.names import DESTINATION
from reference_epp.picker import Picked

if TYPE_CHECKING:
    from ext_proc.messages import Value


@fault(
    "other-destination-in-later-metadata",
    breaks="EPP-DEST-05",
    why="The answer to the body has metadata with another endpoint than the header that was sent before.",
    also_breaks={
        "EPP-SUB-01": "the other endpoint may be outside the subset",
        "EPP-DEST-08": "it comes after the release",
    },
    modes=("full-duplex",),
)
class OtherDestinationInLaterMetadata(Conversation):
    def emit(self, actions: list[Action]) -> list[Action]:
        others = [one for one in self.epp.picker.pool.endpoints if one.text not in str(self.decision)]
        for action in actions:
            if others and not isinstance(action, Close) and action.HasField("request_body"):
                self.destination_metadata(action.dynamic_metadata, Picked((others[0],)))
        return actions


class SaysTheKeyAgain(Conversation):
    """The answer to the body has the destination's key a second time."""

    def emit(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if isinstance(self.decision, Picked) and not isinstance(action, Close) and action.HasField("request_body"):
                fields = action.dynamic_metadata.fields[self.epp.metadata_namespace].struct_value.fields
                self.say(fields[DESTINATION])
        return actions

    def say(self, value: Value) -> None:
        """Set what it says there."""
        value.string_value = ""


@fault(
    "destination-emptied-in-later-metadata",
    breaks="EPP-DEST-05",
    why="The answer to the body has the destination's key again, with an empty value: what was said before is gone.",
    modes=("full-duplex",),
)
class DestinationEmptiedInLaterMetadata(SaysTheKeyAgain):
    pass


@fault(
    "destination-unset-in-later-metadata",
    breaks="EPP-DEST-05",
    why="The answer to the body has the destination's key again, with null: what was said before is gone.",
    modes=("full-duplex",),
)
class DestinationUnsetInLaterMetadata(SaysTheKeyAgain):
    def say(self, value: Value) -> None:
        value.null_value = 0


class TextForANamespace(Conversation):
    """Some answers have text in the place of the destination's namespace, which Envoy reads as an empty struct."""

    kind = "response_headers"

    def emit(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if not isinstance(action, Close) and action.WhichOneof("response") == self.kind:
                action.dynamic_metadata.fields[self.epp.metadata_namespace].string_value = "{}"
        return actions


@fault(
    "later-namespace-is-no-struct",
    breaks="ENV-14",
    why="The answer to the response's headers has text in the place of the destination's namespace.",
    effect="warn",
)
class LaterNamespaceIsNoStruct(TextForANamespace):
    pass


@fault(
    "namespace-of-errors-is-no-struct",
    breaks="ENV-14",
    why="An ImmediateResponse has text in the place of the destination's namespace.",
    effect="warn",
)
class NamespaceOfErrorsIsNoStruct(TextForANamespace):
    kind = "immediate_response"
