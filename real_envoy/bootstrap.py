"""Envoy's bootstrap as typed Python, made of envoy-data-plane's messages. Imported only when an Envoy is started.

The shape is that of an inference gateway: header_to_metadata brings the subset hint in, ext_proc asks the EPP, the
router sends the request to a cluster that follows the EPP's choice (`clusters`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path

from envoy_data_plane.envoy.config.accesslog.v3 import AccessLog
from envoy_data_plane.envoy.config.bootstrap.v3 import (
    Admin,
    Bootstrap,
    BootstrapStaticResources,
    LayeredRuntime,
    RuntimeLayer,
)
from envoy_data_plane.envoy.config.core.v3 import (
    GrpcService,
    GrpcServiceEnvoyGrpc,
    HeaderValue,
    HeaderValueOption,
    Http1ProtocolOptions,
    HttpProtocolOptions,
    Node,
    SubstitutionFormatString,
)
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.config.route.v3 import (
    RetryPolicy,
    RetryPolicyRetryBackOff,
    Route,
    RouteAction,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.extensions.access_loggers.file.v3 import FileAccessLog
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    MetadataOptions,
    MetadataOptionsMetadataNamespaces,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.http.fault.v3 import FaultAbort, HttpFault
from envoy_data_plane.envoy.extensions.filters.http.header_to_metadata.v3 import (
    Config as HeaderToMetadata,
)
from envoy_data_plane.envoy.extensions.filters.http.header_to_metadata.v3 import (
    ConfigKeyValuePair,
    ConfigRule,
    ConfigValueEncode,
    ConfigValueType,
)
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpFilter,
)
from envoy_data_plane.envoy.type.v3 import FractionalPercent, HttpStatus, StatusCode
from envoy_data_plane.google.protobuf import Any as AnyMessage
from envoy_data_plane.google.protobuf import Struct, Value

from fake_proxy.config import Ending, ProxyConfig
from real_envoy.clusters import epp_cluster, pool_cluster, socket_address
from real_envoy.settings import EnvoySettings

_SERVED_HEADER = "x-served-endpoint-internal"
_OWN = "epp-conformance"
"""A metadata namespace that is not forwarded to the EPP."""
_GRACEFUL = "envoy.reloadable_features.ext_proc_graceful_grpc_close"
_ACCESS_LOG = {
    "gateway": "%FILTER_CHAIN_NAME%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "status": "%RESPONSE_CODE%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "flags": "%RESPONSE_FLAGS%",
    "endpoint": "%UPSTREAM_HOST%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
}


def bootstrap(gateways: Mapping[str, EnvoySettings], *, access_log: Path | None = None) -> Bootstrap:
    """One Envoy with a listener for each of `gateways`, by name. Every port is a free one, the admin API's too.

    `access_log` is a file that gets a JSON object per request. Raises `ValueError` if gateways can't share a process.
    """
    endings = {settings.config.ending for settings in gateways.values()}
    if len(endings) > 1:
        raise ValueError("the ending of streams is a runtime flag of the whole Envoy: gateways of one must agree on it")
    clusters = []
    for name, settings in gateways.items():
        clusters += [pool_cluster(f"{name}-pool", settings), epp_cluster(f"{name}-epp", settings)]
    graceful = Ending.HALF_CLOSE in endings
    return Bootstrap(
        node=Node(id=_OWN, cluster=_OWN),  # Envoy reads no endpoints from files without
        admin=Admin(address=socket_address("127.0.0.1", 0)),
        static_resources=BootstrapStaticResources(
            listeners=[_listener(name, settings, access_log) for name, settings in gateways.items()],
            clusters=clusters,
        ),
        layered_runtime=LayeredRuntime(
            layers=[RuntimeLayer(name="suite", static_layer=Struct(fields={_GRACEFUL: Value(bool_value=True)}))]
        )
        if graceful
        else None,
    )


def _listener(name: str, settings: EnvoySettings, access_log: Path | None) -> Listener:
    config = settings.config
    manager = HttpConnectionManager(
        stat_prefix=name,
        http_protocol_options=Http1ProtocolOptions(enable_trailers=True),
        common_http_protocol_options=HttpProtocolOptions(max_headers_count=config.max_header_count),
        max_request_headers_kb=max(1, config.max_header_bytes // 1024),
        delayed_close_timeout=seconds(settings.delayed_close),
        access_log=[_access_log(access_log)] if access_log is not None else [],
        route_config=_routes(name, settings),
        http_filters=[
            _filter("request", _request_headers(settings)),
            *([_filter("refusal", _refusal(config.refused_with))] if config.refused_with is not None else []),
            _filter("envoy.filters.http.ext_proc", _ext_proc(name, settings)),
            # responses pass the filters from the last to the first: before ext_proc, therefore after it in the list
            *([_filter("served", _served(config))] if settings.served_by_header else []),
            _filter("envoy.filters.http.router", Router()),
        ],
    )
    return Listener(
        name=name,
        address=socket_address(settings.listen, 0),
        enable_reuse_port=False,  # with it two Envoys on one port share its traffic silently
        per_connection_buffer_limit_bytes=config.buffer_limit,
        filter_chains=[FilterChain(name=name, filters=[Filter(name="http", typed_config=AnyMessage.pack(manager))])],
    )


def _routes(name: str, settings: EnvoySettings) -> RouteConfiguration:
    config = settings.config
    retry = RetryPolicy(
        retry_on="connect-failure,refused-stream,reset,retriable-status-codes",
        retriable_status_codes=list(config.retriable_statuses),
        num_retries=config.num_retries,
        retry_back_off=RetryPolicyRetryBackOff(
            base_interval=seconds(settings.retry_back_off), max_interval=seconds(10 * settings.retry_back_off)
        ),
    )
    route = Route(
        match=RouteMatch(prefix="/"),
        route=RouteAction(
            cluster=f"{name}-pool",
            timeout=seconds(settings.route_timeout),
            retry_policy=retry if config.num_retries else None,
        ),
    )
    if settings.served_by_header:
        served = HeaderValue(key=_SERVED_HEADER, value="%UPSTREAM_REMOTE_ADDRESS%")
        route.response_headers_to_add = [HeaderValueOption(header=served)]
    if settings.exchange_header:
        route.request_headers_to_add = [HeaderValueOption(header=_exchange_name(settings))]
    return RouteConfiguration(virtual_hosts=[VirtualHost(name="all", domains=["*"], routes=[route])])


def _request_headers(settings: EnvoySettings) -> HeaderToMetadata:
    """Headers that become metadata before the EPP is asked: the subset hint of this request (base64 of a serialised
    `google.protobuf.Value`), and the name of the exchange."""
    config = settings.config
    hint = ConfigKeyValuePair(
        metadata_namespace=config.subset_namespace,
        key=config.subset_key,
        type=ConfigValueType.PROTOBUF_VALUE,
        encode=ConfigValueEncode.BASE64,
    )
    rules = [ConfigRule(header=settings.subset_header, on_header_present=hint, remove=True)]
    if settings.exchange_header:
        name = ConfigKeyValuePair(metadata_namespace=_OWN, key=settings.exchange_header, type=ConfigValueType.STRING)
        rules.append(ConfigRule(header=settings.exchange_header, on_header_present=name, remove=True))
    return HeaderToMetadata(request_rules=rules)


def _exchange_name(settings: EnvoySettings) -> HeaderValue:
    """The header with the exchange's name, for where the EPP's answers don't reach."""
    header = settings.exchange_header
    return HeaderValue(key=header, value=f"%DYNAMIC_METADATA({_OWN}:{header})%")


def _served(config: ProxyConfig) -> HeaderToMetadata:
    """Without `selected_host_key`: the router notes the address in a response header, which becomes metadata here."""
    return HeaderToMetadata(
        response_rules=[
            ConfigRule(
                header=_SERVED_HEADER,
                on_header_present=ConfigKeyValuePair(
                    metadata_namespace=config.destination_namespace, key=config.served_key, type=ConfigValueType.STRING
                ),
                remove=True,
            )
        ]
    )


def _ext_proc(name: str, settings: EnvoySettings) -> ExternalProcessor:
    config = settings.config
    grpc = GrpcServiceEnvoyGrpc(cluster_name=f"{name}-epp", authority=settings.authority or settings.epp)
    metadata = [HeaderValue(key=key.decode(), value=value.decode("latin-1")) for key, value in settings.epp_metadata]
    if settings.exchange_header:
        metadata.append(_exchange_name(settings))
    return ExternalProcessor(
        grpc_service=GrpcService(envoy_grpc=grpc, initial_metadata=metadata),
        processing_mode=ProcessingMode(
            request_header_mode=_sent(config.send_request_headers),
            response_header_mode=_sent(config.send_response_headers),
            request_body_mode=ProcessingModeBodySendMode(int(config.request_body_mode)),
            response_body_mode=ProcessingModeBodySendMode(int(config.response_body_mode)),
            request_trailer_mode=_sent(config.send_request_trailers),
            response_trailer_mode=_sent(config.send_response_trailers),
        ),
        message_timeout=seconds(config.message_timeout),
        failure_mode_allow=config.failure_mode_allow,
        status_on_error=HttpStatus(code=StatusCode(config.status_on_error)) if config.status_on_error != 500 else None,
        send_body_without_waiting_for_header_response=config.send_body_without_waiting,
        request_attributes=list(config.request_attributes),
        response_attributes=list(config.response_attributes),
        metadata_options=MetadataOptions(
            forwarding_namespaces=MetadataOptionsMetadataNamespaces(untyped=list(config.forwarding_namespaces)),
            receiving_namespaces=MetadataOptionsMetadataNamespaces(untyped=list(config.receiving_namespaces)),
        ),
    )


def _sent(send: bool) -> ProcessingModeHeaderSendMode:
    return ProcessingModeHeaderSendMode.SEND if send else ProcessingModeHeaderSendMode.SKIP


def _access_log(path: Path) -> AccessLog:
    fields = {name: Value(string_value=operator) for name, operator in _ACCESS_LOG.items()}
    log = FileAccessLog(path=str(path), log_format=SubstitutionFormatString(json_format=Struct(fields=fields)))
    return AccessLog(name="envoy.access_loggers.file", typed_config=AnyMessage.pack(log))


def _refusal(status: int) -> HttpFault:
    return HttpFault(abort=FaultAbort(http_status=status, percentage=FractionalPercent(numerator=100)))


def _filter(name: str, config: HeaderToMetadata | ExternalProcessor | HttpFault | Router) -> HttpFilter:
    return HttpFilter(name=name, typed_config=AnyMessage.pack(config))


def seconds(number: float) -> dt.timedelta:
    """A duration of `number` seconds."""
    return dt.timedelta(seconds=number)
