"""What the scripted EPPs of a gateway under test do for a request, as its scenario says it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from conformance.scenario import references
from conformance.scenario.epp_script import EppScript, LocalReply
from conformance.scenario.header_fields import HeaderPairs, value_bytes
from conformance.scenario.schema import Request
from conformance.targets.gateway import EPPS
from ext_proc.messages import HeaderValueOption
from ext_proc.protocol import FALLBACK
from fake_epp import Act, Answer, Delay, End, Immediate, Pick, Reset, Script, SetHeader

LATE = 0.4
"""Seconds that our own loop may be late: a gateway's patience with an EPP may be as short as a second."""

UNAVAILABLE = 14


def in_turn(request: Request, index: int) -> Request:
    """Repeat number `index` of a request, whose picks may be its own."""
    scripts = {"epp": _in_turn(request.epp, index), "second_epp": _in_turn(request.second_epp, index)}
    return request.model_copy(update=scripts)


def scripts_of(request: Request) -> dict[str, EppScript]:
    """What each EPP does for a request, by the name of its pool."""
    return {EPPS[0]: request.epp, EPPS[1]: request.second_epp}


def _in_turn(script: EppScript, index: int) -> EppScript:
    if not script.picks:
        return script
    return script.model_copy(update={"pick": script.picks[index % len(script.picks)], "picks": ()})


def played(said: EppScript, endpoints: Mapping[str, tuple[str, ...]], namespace: str) -> Script:
    """A scenario's script as the scripted EPP plays it."""
    first: tuple[Act, ...] = (Delay(seconds=said.delay),) if said.delay else ()
    if said.fails is not None and said.fails_at is None and said.decides == "end":
        return Script(acts={"request_end": (*first, *_failure(said))}, decides="end")
    if said.fails is not None and said.fails_at is None:
        return Script(acts={"request_headers": (*first, *_failure(said))}, quiet=True)
    if said.immediate is not None and said.decides == "end":
        return Script(acts={"request_end": (*first, _immediate(said.immediate))}, decides="end")
    if said.immediate is not None:
        return Script(acts={"request_headers": (*first, _immediate(said.immediate))}, quiet=True)
    action = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD if said.action == "overwrite" else None
    sets = tuple(dataclasses.replace(one, action=action) for one in _set(said.sets))
    answer = Answer(set_headers=sets, remove_headers=said.removes)
    acts: dict[str, tuple[Act, ...]] = {"response_headers": (answer,)} if answer != Answer() else {}
    if said.refuses_end is not None:
        acts["request_end"] = (_immediate(said.refuses_end),)
    if said.refuses_response is not None:  # what was told of its body at once is not answered
        acts |= {"response_headers": (_immediate(said.refuses_response),), "response_body": (), "response_trailers": ()}
    if said.fails_at is not None:
        answered = (Answer(),) if said.fails_at == "request-end" else ()
        acts[said.fails_at.replace("-", "_")] = (*answered, *_failure(said))
    if said.fallback is not None:
        fallback = references.resolve(said.fallback, endpoints)
        answer = dataclasses.replace(answer, metadata={namespace: {FALLBACK: fallback}})
    pick = None
    if said.pick:
        pick = Pick(
            endpoints=references.resolve(said.pick, endpoints),
            header=said.said_in != "metadata",
            metadata=said.said_in != "header",
            namespace=namespace,
            action=action,
        )
    if first or answer != Answer():
        acts["request_headers"] = (*first, answer)
    return Script(
        pick=pick,
        decides=said.decides,
        acts=acts,
        edits=_encoded(said.edits),
        edits_response=_encoded(said.edits_response),
        tells_length=said.tells_length,
        clears=said.clears,
        echoes=said.echoes,
        action=action,
        replaces={
            side: text.encode()
            for side, text in (("request", said.replaces), ("response", said.replaces_response))
            if text is not None
        },
    )


def _encoded(edits: tuple[str, str] | None) -> tuple[bytes, bytes] | None:
    return (edits[0].encode(), edits[1].encode()) if edits is not None else None


def _failure(said: EppScript) -> tuple[Act, ...]:
    match said.fails:
        case "reset":
            return (Reset(),)
        case "close":
            return (End(),)
        case "error":
            return (End(status=UNAVAILABLE, message="no endpoint picker here"),)
        case _:
            return ()


def _immediate(said: LocalReply) -> Immediate:
    return Immediate(code=said.code, body=said.body.encode(), headers=_set(said.headers))


def _set(headers: HeaderPairs) -> tuple[SetHeader, ...]:
    return tuple(SetHeader(name=name.lower(), value=value_bytes(value)) for name, value in headers)
