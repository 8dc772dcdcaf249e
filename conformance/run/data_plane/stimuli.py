"""From a scenario's `Exchange` to what the fake proxy is asked: the HTTP request, the data plane, the deviations."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance.planning.data_plane import MODES, ending_of, paced, served_of
from conformance.planning.injections import injected
from conformance.scenario import references
from conformance.scenario.schema import BodyMode as ScenarioMode
from conformance.scenario.schema import Exchange, Reply
from conformance.targets.http_request import http_request, without
from conformance.targets.profile import Profile
from ext_proc.protocol import SUBSET
from fake_proxy.client import HttpRequest
from fake_proxy.config import ProtocolConfigForm, ProxyConfig
from fake_proxy.pace import PATIENCE
from fake_proxy.stimulus import Stimulus


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One exchange, ready to be run."""

    request: HttpRequest
    config: ProxyConfig
    stimulus: Stimulus
    reply: Reply
    fail_first: int
    note: Mapping[str, Any]


def prepare(
    exchange: Exchange,
    *,
    index: int,
    mode: ScenarioMode,
    profile: Profile,
    endpoints: Mapping[str, tuple[str, ...]],
    pool: tuple[str, ...],
    rng: random.Random,
) -> Prepared:
    """The `index`th repeat of `exchange` in body mode `mode`.

    `endpoints` resolves references, `pool` has every endpoint of the data plane's cluster, `rng` gives fresh prompts.
    """
    exchange = exchange.model_copy(
        update={
            name: references.resolve(getattr(exchange, name), endpoints)
            for name in ("headers", "subset", "subsets", "hint", "metadata")
            if name in exchange.model_fields_set  # a hint that is not set differs from one that is null
        }
    )
    if exchange.subsets:
        exchange = exchange.model_copy(update={"subset": exchange.subsets[index % len(exchange.subsets)]})
    if exchange.models:
        exchange = exchange.model_copy(update={"model": exchange.models[index % len(exchange.models)]})
    request = paced(exchange, without(exchange.omit_headers, http_request(exchange, profile.requests, rng)))
    return Prepared(
        request=request,
        config=_config(exchange, mode, profile, pool, index),
        stimulus=_stimulus(exchange, profile, endpoints),
        reply=exchange.reply,
        fail_first=exchange.fail_first,
        note=exchange.note,
    )


# -- the data plane ----------------------------------------------------------------------------------------------------


def _config(exchange: Exchange, mode: ScenarioMode, profile: Profile, pool: tuple[str, ...], index: int) -> ProxyConfig:
    forms = {"absent": ProtocolConfigForm.ABSENT}
    hinted = _hint_namespace(exchange, profile)
    namespaces = dict.fromkeys((profile.metadata.destination, profile.metadata.subset, hinted, *exchange.metadata))
    return ProxyConfig(
        request_body_mode=MODES[exchange.mode or mode],
        response_body_mode=MODES[exchange.response_mode or exchange.mode or mode],
        send_body_without_waiting=exchange.protocol_config == "not-waiting",
        forwarding_namespaces=tuple(namespaces),
        receiving_namespaces=(profile.metadata.destination,),
        destination_namespace=profile.metadata.destination,
        subset_namespace=profile.metadata.subset,
        pool=pool,
        protocol_config=forms.get(exchange.protocol_config, ProtocolConfigForm.MODES),
        header_value_field=exchange.header_field,
        refused_with=exchange.reply.status if exchange.reply.source == "refused" else None,
        ending=ending_of(exchange, index),
        message_timeout=2 * PATIENCE * profile.timeouts.answer,  # that of the exchange comes first, and is recorded
    )


def _stimulus(exchange: Exchange, profile: Profile, endpoints: Mapping[str, tuple[str, ...]]) -> Stimulus:
    metadata: dict[str, dict[str, Any]] = {name: dict(values) for name, values in exchange.metadata.items()}
    hint = _hint(exchange, endpoints)
    if hint is not None:
        metadata.setdefault(_hint_namespace(exchange, profile), {})[SUBSET] = hint[0]
    append, inject = injected(exchange.inject)
    return Stimulus(
        metadata=metadata,
        metadata_on="none" if exchange.metadata_context == "absent" else exchange.hint_on,
        served=served_of(exchange, endpoints),
        append=append,
        inject=inject,
        duplicate_end="duplicate-end" in exchange.inject,
    )


def _hint_namespace(exchange: Exchange, profile: Profile) -> str:
    return exchange.hint_namespace or profile.metadata.subset


def _hint(exchange: Exchange, endpoints: Mapping[str, tuple[str, ...]]) -> tuple[Any] | None:
    """The subset hint in a tuple of one (it may be null), or None if there is none."""
    if exchange.subset is not None:
        address, _, port = endpoints[references.NOBODY][0].rpartition(":")
        ports = (f"{address}:{(int(port) + number) % 60_000 + 1000}" for number in itertools.count(1))
        taken = {one for own in endpoints.values() for one in own}  # where pods share one address
        filler = list(itertools.islice((one for one in ports if one not in taken), exchange.hint_filler))
        return ([*filler, *exchange.subset],)
    return (exchange.hint,) if "hint" in exchange.model_fields_set else None
