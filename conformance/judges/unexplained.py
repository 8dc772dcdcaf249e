"""What became of a response at the client, where no rule says why: the net under all judges.

A data plane that follows the protocol passes a model server's response on unless the EPP keeps it from doing so, and
how it does that is for a rule to say. Where none does, a rule may be missing: that is no finding about the target, and
nothing that may pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.case import Case
from conformance.judges.ruling import Ruling
from conformance.verdict import Verdict


def unexplained(case: Case) -> Iterator[Ruling]:
    """Whether the client got the response of the model server. Asked only where no fault was found with `case`."""
    conversation, flow = case.conversation, case.flow
    response, attempts = conversation.client_response, conversation.upstream_responses
    if response is None or not attempts or attempts[-1].outcome != "response" or attempts[-1].status is None:
        return
    if flow.immediate is not None or flow.offence is not None or conversation.aborted or conversation.expired:
        return
    (entry, got), sent = response, attempts[-1].status
    if (got.status == sent and got.complete) or case.scene.explains_end(case):
        return
    cut = "" if got.complete else ", cut short"
    details = f" ({got.details})" if got.details else ""
    yield case.fail(
        "ENV-24",
        f"the client gets the response of the model server: {sent}",
        f"the client got {got.status}{cut}{details}, and no rule says why",
        at=entry.seq,
        hint="A rule may be missing in the suite: please report this exchange.",
        verdict=Verdict.INCONCLUSIVE,
    )
