"""ImmediateResponses: complete and final (ENV-15), and not in the place of a response (ENV-24)."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.case import Case
from conformance.judges.registry import judge_of_case
from conformance.judges.ruling import Ruling, held
from conformance.said import HeaderList, Said
from conformance.steering import counting, sent_headers, values_of
from conformance.verdict import Verdict
from ext_proc.headers import value_of

VALID = range(200, 600)
"""Codes that an ImmediateResponse may have."""


@judge_of_case("ENV-15", hygiene=True)
def immediate_response(case: Case) -> Iterator[Ruling]:
    """An ImmediateResponse has a valid status, and the stream ends well after it."""
    said = case.flow.immediate
    if said is None or said.response is None or case.flow.offence is not None:
        return
    immediate = said.response.immediate_response
    if not immediate.HasField("status") or case.code not in VALID:
        actual = f"code {case.code}" if immediate.HasField("status") else "no status"
        expected = "a status with a code from 200 to 599"
        yield case.fail("ENV-15", expected, actual, at=said, hint="Envoy takes a missing status for 200.")
        return
    if case.flow.response.complete:
        expected = "no ImmediateResponse once the response is complete"
        hint = "Envoy takes the response away from the client, which may have it already."
        yield case.fail("ENV-15", expected, f"ImmediateResponse {case.code}", at=said, hint=hint)
        return
    released = case.decided if case.decided is not said and case.flow.response.headers is None else None
    if released is not None and case.demand.known and case.demand.load.idle and not case.demand.load.blind:
        expected = "no answer that lets the request go before an ImmediateResponse"
        hint = "Only eviction under load would be a reason to take a pick back."
        yield case.warn("ENV-15", expected, f"ImmediateResponse {case.code} after {released.what}", at=said, hint=hint)
        return
    end = case.conversation.end
    if end is not None and end[1].how == "status" and end[1].status:
        expected = "after an ImmediateResponse the stream ends with gRPC status OK"
        yield case.warn("ENV-15", expected, f"it ended with {end[1].status} {end[1].message!r}", at=end[0].seq)
    elif case.conversation.drained:
        yield held("ENV-15")


@judge_of_case("ENV-24")
def response_headers(case: Case) -> Iterator[Ruling]:
    """The response's status and content type are left alone."""
    lane, said = case.flow.response, case.flow.response.headers_answer
    sent = sent_headers(lane)
    if sent is None:
        return
    status = values_of(sent, ":status")
    if (immediate := case.flow.immediate) is not None and immediate is not case.decided and not lane.complete:
        expected = f"the response of the model server ({_text(status)}) is passed on"
        actual = f"ImmediateResponse {case.code} in {'its place' if said is None else 'the midst of it'}"
        # Under load it may be an eviction that met the response on its way.
        verdict = Verdict.FAIL if case.demand.load.idle else Verdict.WARN
        yield case.fail("ENV-24", expected, actual, at=immediate, verdict=verdict)
        return
    answers = counting(lane)
    if said is None or any(one.partial for one in answers):
        return
    broken = [ruling for one in answers for ruling in _changed(case, one, sent)]
    yield from broken or (held("ENV-24"),)


def _changed(case: Case, said: Said, sent: HeaderList) -> Iterator[Ruling]:
    """What one answer does to the status and the content type that were `sent`."""
    mutation = said.header_mutation
    if mutation is None:
        return
    for option in mutation.set_headers:
        name, value = option.header.key.lower(), value_of(option.header)
        own = values_of(sent, name)
        actual = f"{name} is set to {value.decode('latin-1')[:60]!r}"
        if name == ":status" and value not in own:
            yield case.fail("ENV-24", f":status stays {_text(own)}", actual, at=said)
        elif name == "content-type" and own and value not in own:
            yield case.warn("ENV-24", f"content-type stays {_text(own)}", actual, at=said)
    removed = {name.lower() for name in mutation.remove_headers}
    replaced = {option.header.key.lower() for option in mutation.set_headers}
    if "content-type" in removed - replaced and values_of(sent, "content-type"):
        yield case.fail("ENV-24", "the response keeps its content-type", "it is removed", at=said)


def _text(values: object) -> str:
    return b", ".join(values).decode("latin-1") if isinstance(values, list) else ""
