"""What scenarios ask of a data plane and a real Envoy can't do, or not in the variant that is used."""

from __future__ import annotations

from conformance.planning.data_plane import DataPlaneChoice
from conformance.scenario.schema import Exchange, Scenario
from real_envoy import Routing

LONGEST_HINT = 100
"""Filler endpoints of a subset hint; what many take as a header, Envoy's header_to_metadata does not."""

FILLERS = 90
"""Filler headers of a request, besides its own: Envoy takes 100."""


def beyond(scenario: Scenario, choice: DataPlaneChoice) -> str | None:
    """Why a scenario can't run through the real Envoy that is chosen; None if it can, or if the fake is."""
    if choice.variant is None:
        return None
    if any(step.unread_connection for step in scenario.steps):
        return f"a real Envoy ({choice.name}) reads from every connection"
    exchanges = (step.exchange for step in scenario.steps if step.exchange is not None)
    found = next((why for one in exchanges if (why := _never(one) or _not_in(choice, one))), None)
    return None if found is None else f"a real Envoy ({choice.name}) {found}"


_CARRIED = frozenset({
    "method", "path", "query_filler", "authority", "headers", "filler_headers", "http", "model", "prompt",
    "sheddable", "body", "chunks", "end", "trailers", "content_length", "mode", "response_mode", "subset",
    "subsets", "models", "hint", "hint_filler", "protocol_config", "reply", "abort", "ending", "connection", "repeat",
    "concurrent", "fail_first", "interleaved", "lock_step",
})  # fmt: skip
"""What an exchange may ask for; anything else, and whatever is added to the schema, only the fake does. Of interleaved
exchanges Envoy decides when it reads which."""

_REASONS = {
    "inject": "sends no such messages",
    "metadata": "sends no metadata of the client's making",
    "metadata_context": "always sends a metadata context",
    "header_field": "sends header values as raw_value",
    "omit_headers": "adds a request id to each request",
    "hint_on": "sends the same metadata on every message",
    "served": "reports the endpoint that served",
}


def _never(exchange: Exchange) -> str | None:
    """What no Envoy does."""
    for name, field in Exchange.model_fields.items():
        if name not in _CARRIED and getattr(exchange, name) != field.get_default(call_default_factory=True):
            return _REASONS.get(name, f"knows nothing like {field.alias or name}")
    reply = exchange.reply
    reasons = {
        "always says its body modes": exchange.protocol_config == "absent",
        "does not tell its client of the pick": exchange.abort == "destination",
        "takes no subset hint of that size": exchange.hint_filler > LONGEST_HINT,
        "takes at most 100 headers": exchange.filler_headers > FILLERS,
        "gets its responses from pods that can be reached": reply.source not in ("model-server", "scripted"),
        "gets its responses from pods, which answer complete requests": reply.early,
        "gets its responses from pods, over HTTP/1.1": reply.coalesced,
    }
    return next((reason for reason, true in reasons.items() if true), None)


def _not_in(choice: DataPlaneChoice, exchange: Exchange) -> str | None:
    """What this variant does not do."""
    assert choice.variant is not None
    config = choice.variant.config
    hinted = exchange.subset is not None or exchange.subsets or "hint" in exchange.model_fields_set
    if hinted and not config.forwarding_namespaces:
        return "forwards no subset hint"
    if exchange.fail_first and choice.variant.routing is not Routing.OVERRIDE_HOST:
        return "does not walk a list"
    if exchange.end == "trailers" and not config.send_request_trailers:
        return "sends no request trailers"
    if exchange.reply.trailers and not config.send_response_trailers:
        return "sends no response trailers"
    if choice.mode is not None and exchange.mode not in (None, choice.mode):
        return f"is configured for {choice.mode} bodies"
    return None
