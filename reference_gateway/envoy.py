"""Broken configurations of the real Envoy: a right one, changed in one place, in the place of the process that asks."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

from ext_proc.http2.address import split_address
from fake_proxy.config import BodyMode, ProxyConfig
from real_envoy import EnvoyError, EnvoySettings, Routing, find_envoy, render
from reference_gateway.relay import BackendPool, Settings

EXT_PROC = "envoy.filters.http.ext_proc"
PATIENCE = 4.0
"""Seconds until Envoy answers for a model server or an EPP that does not: before clients give up."""

Message = dict[str, Any]
"""A message of Envoy's configuration as JSON."""

Amend = Callable[[Message, ProxyConfig], None]
"""Changes an HttpConnectionManager."""

_TYPE = "type.googleapis.com/envoy.extensions.filters.http."


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """What is different: of `ProxyConfig`, of the way of routing, and of Envoy's own messages."""

    config: Mapping[str, Any] = field(default_factory=dict)
    routing: Routing = Routing.OVERRIDE_HOST
    amend: Amend | None = None
    strips: bool = True
    """Whether the client's destination header is removed before the EPP is asked."""
    own_epps: bool = True
    """Whether each pool of a split has its own EPP asked, and not all the first's."""


def become(address: str, settings: Settings, broken: Broken) -> NoReturn:
    """Replace this process by an Envoy that listens on `address`. Ends it with a line if there is none to be had."""
    described = [_described(pool, broken) for pool in settings.pools]
    try:
        binary = find_envoy()
        described[0].require(binary)
    except EnvoyError as problem:
        sys.exit(f"{problem.what}; {problem.hint}")
    configuration = json.dumps(bootstrap(address, described, broken, split_header=settings.split_header))
    options = ("--concurrency", "1", "--disable-hot-restart", "-l", "error")
    os.execv(binary.path, [str(binary.path), "--config-yaml", configuration, *options])


def _described(pool: BackendPool, broken: Broken) -> EnvoySettings:
    changed = {"message_timeout": PATIENCE, **broken.config}
    config = dataclasses.replace(ProxyConfig(), pool=pool.endpoints, **changed)
    return EnvoySettings(epp=pool.epp, config=config, routing=broken.routing, route_timeout=PATIENCE)


def bootstrap(address: str, pools: Sequence[EnvoySettings], broken: Broken, *, split_header: str = "") -> Message:
    """The configuration of an Envoy that listens on `address`, and splits requests with `split_header` over `pools`."""
    settings = pools[0]
    names = [f"pool{number}" for number in range(1, len(pools) + 1)]
    document: Message = json.loads(render(dict(zip(names, pools, strict=True))))
    del document["staticResources"]["listeners"][1:]
    listener = document["staticResources"]["listeners"][0]
    host, port = split_address(address)
    listener["address"]["socketAddress"].update(address=host, portValue=port)
    manager = listener["filterChains"][0]["filters"][0]["typedConfig"]
    manager.pop("accessLog", None)
    if split_header:
        _split(manager, split_header, names, own_epps=broken.own_epps)
    if broken.strips:
        _strip(manager, settings.config)
    if broken.amend is not None:
        broken.amend(manager, settings.config)
    return document


# -- changes -----------------------------------------------------------------------------------------------------------


def _strip(manager: Message, config: ProxyConfig) -> None:
    """Remove the client's destination header before any other filter: what a right configuration does."""
    removal = {
        "@type": f"{_TYPE}header_mutation.v3.HeaderMutation",
        "mutations": {"requestMutations": [{"remove": config.destination_header}]},
    }
    manager["httpFilters"].insert(0, {"name": "envoy.filters.http.header_mutation", "typedConfig": removal})


def _split(manager: Message, name: str, pools: Sequence[str], *, own_epps: bool) -> None:
    """A route for requests with the header `name`: clusters of equal weight, each with the EPP of its pool."""
    routes = manager["routeConfig"]["virtualHosts"][0]["routes"]
    clusters: list[Message] = [{"name": f"{pool}-pool", "weight": 1} for pool in pools]
    for pool, cluster in zip(pools, clusters, strict=True):
        service = {"envoyGrpc": {"clusterName": f"{pool}-epp"}}
        override = {"@type": f"{_TYPE}ext_proc.v3.ExtProcPerRoute", "overrides": {"grpcService": service}}
        if own_epps:
            cluster["typedPerFilterConfig"] = {EXT_PROC: override}
    action = {key: value for key, value in routes[0]["route"].items() if key != "cluster"}
    match = {"prefix": "/", "headers": [{"name": name, "presentMatch": True}]}
    routes.insert(0, {"match": match, "route": {**action, "weightedClusters": {"clusters": clusters}}})


def _unasked_for_get(manager: Message, _config: ProxyConfig) -> None:
    """A separate route for GET requests, on which ext_proc is switched off."""
    routes = manager["routeConfig"]["virtualHosts"][0]["routes"]
    unasked = {
        "match": {"prefix": "/", "headers": [{"name": ":method", "stringMatch": {"exact": "GET"}}]},
        "route": routes[0]["route"],
        "typedPerFilterConfig": {EXT_PROC: {"@type": f"{_TYPE}ext_proc.v3.ExtProcPerRoute", "disabled": True}},
    }
    routes.insert(0, unasked)


def _no_mutations(manager: Message, _config: ProxyConfig) -> None:
    """ext_proc may change no header."""
    processor = next(one["typedConfig"] for one in manager["httpFilters"] if one["name"] == EXT_PROC)
    processor["mutationRules"] = {"disallowAll": True}


def _local_replies(**change: Any) -> Amend:
    """Every local reply of 400 and above is rewritten, those of the EPP as well."""
    errors = {"comparison": {"op": "GE", "value": {"defaultValue": 400, "runtimeKey": "none"}}}
    mapper = {"filter": {"statusCodeFilter": errors}, **change}

    def amend(manager: Message, _config: ProxyConfig) -> None:
        manager["localReplyConfig"] = {"mappers": [mapper]}

    return amend


def _hint_as_text(manager: Message, config: ProxyConfig) -> None:
    """The whole pool as a subset hint, as one string."""
    hint = {
        "metadataNamespace": config.subset_namespace,
        "key": config.subset_key,
        "value": ",".join(config.pool),
        "type": "STRING",
    }
    rules = [{"header": "x-no-such-header", "onHeaderMissing": hint}]
    told = {"@type": f"{_TYPE}header_to_metadata.v3.Config", "requestRules": rules}
    manager["httpFilters"].insert(0, {"name": "hint", "typedConfig": told})


_STREAMED = {"request_body_mode": BodyMode.STREAMED, "response_body_mode": BodyMode.STREAMED}
_HEADER, _METADATA = {"destination_sources": ("header",)}, {"destination_sources": ("metadata",)}

BROKEN: Mapping[str, Broken] = MappingProxyType(
    {
        "right": Broken(),
        "streamed": Broken(config=_STREAMED),
        "impatient": Broken(config={**_STREAMED, "message_timeout": 0.2}),
        "forwards-no-metadata": Broken(config={"forwarding_namespaces": ()}),
        "notes-no-endpoint": Broken(config={"report_served": False}),
        "notes-endpoint-elsewhere": Broken(config={"served_key": "x-served-by"}),
        "takes-no-metadata": Broken(config={**_METADATA, "receiving_namespaces": ()}),
        "reads-another-header": Broken(config={**_HEADER, "destination_header": "x-endpoint"}),
        "mutations-not-allowed": Broken(config=_HEADER, amend=_no_mutations),
        "dials-the-header": Broken(config=_HEADER, routing=Routing.ORIGINAL_DST_HEADER),
        "balances-subsets": Broken(config=_METADATA, routing=Routing.SUBSET),
        "keeps-the-clients-header": Broken(strips=False),
        "unasked-for-get": Broken(amend=_unasked_for_get),
        "retries-off": Broken(config={"num_retries": 0}),
        "errors-as-500": Broken(amend=_local_replies(statusCode=500)),
        "error-page": Broken(amend=_local_replies(body={"inlineString": "<h1>Something went wrong</h1>"})),
        "hint-as-text": Broken(amend=_hint_as_text),
        "split": Broken(),
        "split-asks-one-epp": Broken(own_epps=False),
        "fails-open": Broken(config={**_STREAMED, "failure_mode_allow": True}),
    }
)
"""By name; `right`, `streamed`, `impatient` and `split` are what the others differ from."""
