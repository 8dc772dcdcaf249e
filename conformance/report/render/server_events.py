"""What a model server was asked, what it answered and what its metrics showed, in words for a transcript."""

from __future__ import annotations

from conformance.evidence.model_server import LoadPhase, MetricsPage, ServerAnswered, ServerAsked
from conformance.printable import plural
from conformance.report.render.messages import Described, body_lines, header_lines
from ext_proc.record import Event

CLIENT, SERVER, SUITE = "client", "model server", "suite"
LINES = 40
"""Lines of a page that are shown."""


def described(event: Event) -> Described | None:
    """Who, what, a summary and details; None for an event of another kind."""
    match event:
        case ServerAsked():
            prompt = f", a prompt of {event.prompt['words']} words" if event.prompt else ""
            wrong = f" ({event.wrong})" if event.wrong else ""
            details = (*header_lines(event.headers), *body_lines(event.body))
            return CLIENT, "HTTP request", f"{event.method} {event.path}{prompt}{wrong}", details
        case ServerAnswered():
            summary = f"{event.status}, {plural(len(event.body), 'byte')}, after {event.seconds:g} s"
            if event.outcome != "response":
                summary = event.details or event.outcome
            return SERVER, "answers", summary, (*header_lines(event.headers), *body_lines(event.body))
        case MetricsPage():
            load = f"; {plural(event.sent, 'request')} in flight, {event.begun} under way" if event.most else ""
            again = f"; {plural(event.same, 'time')} more" if event.same else ""
            what = (
                f"{event.status}, {plural(event.size, 'byte')}"
                if event.outcome == "page"
                else event.details or event.outcome
            )
            lines = event.body.decode("utf-8", "replace").splitlines()
            more = (f"… {plural(len(lines) - LINES, 'line')} more",) if len(lines) > LINES else ()
            return SERVER, "shows its metrics", f"{what}{load}{again}", (event.url, *lines[:LINES], *more)
        case LoadPhase():
            return SUITE, "load", _load(event), ()
    return None


def _load(event: LoadPhase) -> str:
    refused = ", ".join(f"{count} × {what}" for what, count in event.refused.items())
    ended = f"; {event.finished} served" + (f", not served: {refused}" if refused else "")
    match event.phase:
        case "raised":
            return f"{plural(event.level, 'request')} at a time, of {plural(event.tokens, 'token')}{ended}"
        case "rest":
            return "the gauges are at rest" if event.met else f"the gauges are not at rest after {event.seconds:g} s"
        case _:
            return f"is {event.phase}{ended}"
