"""Whether each request has an answer, or a finding that says that it has none.

An exchange that broke off before its answer is one that judges can't say anything of. The suite itself breaks one off
only where its client goes away, or where the answer is late: then the judges say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.evidence.episode import Context, Episode
from conformance.judges.episode_view import EpisodeView
from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.reading.stream_state import StopKind
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.schema import BodySpec, Exchange
from conformance.verdict import Finding, Verdict
from fake_proxy.config import ProxyConfig

_SAID = (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE)


def problems(
    names: Sequence[str],
    episode: Episode,
    context: Context,
    catalogue: Catalogue,
    findings: Sequence[Finding],
) -> Iterator[str]:
    """What speaks against exchanges with no answer, of those `names` that must have one."""
    said = {one.exchange for one in findings if one.verdict in _SAID}
    whole = set(names) - said
    if not whole or None in said or context.stimulus != "contract":
        return
    facts = EpisodeView(episode, context, catalogue)  # its views hold it weakly
    for view in facts.exchanges:
        if view.exchange in whole and _broken_off(view):
            yield f"{view.exchange}: it has no answer, and nothing is found at fault"


def must_be(exchange: Exchange, mode: str) -> bool:
    """Whether a data plane lets `exchange`, in a run with this body mode, go on until it is answered."""
    reply, body = exchange.reply, exchange.body
    size = body.size or 0 if isinstance(body, BodySpec) else 0
    too_large = (exchange.mode or mode) == "buffered" and size > ProxyConfig().buffer_of(exchange.http)
    return not (exchange.inject or exchange.abort or reply.early or reply.source == "refused" or too_large)


def _broken_off(view: ExchangeView) -> bool:
    """Whether it ended before its answer without the EPP's doing."""
    stop = view.stream.stop
    ours = stop is None or stop.kind is StopKind.CANCELLED
    if view.answer is AnswerKind.NOT_ASKED:
        return ours
    return view.answer is AnswerKind.UNSEEN and view.stream.decision is None and ours
