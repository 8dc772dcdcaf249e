"""The clusters of Envoy's bootstrap: the pool, by way of routing, and the EPP, with or without TLS.

Their endpoints are left out: they change from start to start, and `render` puts them in.
"""

from __future__ import annotations

import datetime as dt
import ssl

from envoy_data_plane.envoy.config.cluster.v3 import (
    Cluster,
    ClusterDiscoveryType,
    ClusterEdsClusterConfig,
    ClusterLbPolicy,
    ClusterLbSubsetConfig,
    ClusterLbSubsetConfigLbSubsetFallbackPolicy,
    ClusterLbSubsetConfigLbSubsetSelector,
    ClusterOriginalDstLbConfig,
    LoadBalancingPolicy,
    LoadBalancingPolicyPolicy,
)
from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    ConfigSource,
    DataSource,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    PathConfigSource,
    SocketAddress,
    TransportSocket,
    TypedExtensionConfig,
)
from envoy_data_plane.envoy.config.core.v3 import HttpProtocolOptions as CommonHttpProtocolOptions
from envoy_data_plane.envoy.extensions.load_balancing_policies.override_host.v3 import (
    OverrideHost,
    OverrideHostOverrideHostSource,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.round_robin.v3 import RoundRobin
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import (
    CertificateValidationContext,
    CommonTlsContext,
    SubjectAltNameMatcher,
    SubjectAltNameMatcherSanType,
    TlsCertificate,
    UpstreamTlsContext,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions,
    HttpProtocolOptionsExplicitHttpConfig,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from envoy_data_plane.envoy.type.metadata.v3 import MetadataKey, MetadataKeyPathSegment
from envoy_data_plane.google.protobuf import Any as AnyMessage

from ext_proc.http2.address import authority_of, socket_path, split_address
from ext_proc.http2.tls import ClientTls
from fake_proxy.config import ProxyConfig
from real_envoy.endpoints import pool_file
from real_envoy.settings import EnvoySettings, Routing

_HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def pool_cluster(name: str, settings: EnvoySettings) -> Cluster:
    """The model servers, reached over HTTP/1.1 by the way of routing that `settings` ask for."""
    config = settings.config
    cluster = Cluster(
        name=name,
        connect_timeout=dt.timedelta(seconds=settings.connect_timeout),
        typed_extension_protocol_options={
            _HTTP_OPTIONS: AnyMessage.pack(
                HttpProtocolOptions(
                    explicit_http_config=HttpProtocolOptionsExplicitHttpConfig(
                        http_protocol_options=Http1ProtocolOptions(enable_trailers=True)
                    )
                )
            )
        },
    )
    match settings.routing:
        case Routing.OVERRIDE_HOST:
            cluster.load_balancing_policy = _override_host(config)
        case Routing.SUBSET:
            cluster.lb_subset_config = ClusterLbSubsetConfig(
                fallback_policy=ClusterLbSubsetConfigLbSubsetFallbackPolicy.ANY_ENDPOINT,
                subset_selectors=[ClusterLbSubsetConfigLbSubsetSelector(keys=[config.destination_key])],
            )
        case Routing.ORIGINAL_DST_HEADER:
            _original_dst(
                cluster,
                ClusterOriginalDstLbConfig(use_http_header=True, http_header_name=config.destination_header),
            )
        case Routing.ORIGINAL_DST_METADATA:
            _original_dst(cluster, ClusterOriginalDstLbConfig(metadata_key=_destination(config)))
    if settings.changing_pool and settings.knows_pool:
        cluster.type = ClusterDiscoveryType.EDS
        cluster.eds_cluster_config = ClusterEdsClusterConfig(
            eds_config=ConfigSource(path_config_source=PathConfigSource(path=pool_file(name)))
        )
    return cluster


def epp_cluster(name: str, settings: EnvoySettings) -> Cluster:
    """The EPP, over HTTP/2."""
    return Cluster(
        name=name,
        connect_timeout=dt.timedelta(seconds=settings.connect_timeout),
        typed_extension_protocol_options={
            _HTTP_OPTIONS: AnyMessage.pack(
                HttpProtocolOptions(
                    explicit_http_config=HttpProtocolOptionsExplicitHttpConfig(
                        http2_protocol_options=Http2ProtocolOptions()
                    ),
                    common_http_protocol_options=CommonHttpProtocolOptions(max_requests_per_connection=1)
                    if settings.fresh_connections
                    else None,
                )
            )
        },
        transport_socket=_tls(settings.epp_tls, settings.epp) if settings.epp_tls is not None else None,
    )


def socket_address(host: str, port: int) -> Address:
    """A TCP address; port 0 is any free one."""
    return Address(socket_address=SocketAddress(address=host, port_value=port))


def _override_host(config: ProxyConfig) -> LoadBalancingPolicy:
    sources = [
        OverrideHostOverrideHostSource(metadata=_destination(config))
        if source == "metadata"
        else OverrideHostOverrideHostSource(header=config.destination_header)
        for source in config.destination_sources
    ]
    served = MetadataKey(key=config.destination_namespace, path=[MetadataKeyPathSegment(key=config.served_key)])
    policy = OverrideHost(
        override_host_sources=sources,
        selected_host_key=served if config.report_served else None,
        fallback_policy=_policy("round_robin", RoundRobin()),
    )
    return _policy("override_host", policy)


def _policy(name: str, config: OverrideHost | RoundRobin) -> LoadBalancingPolicy:
    typed = TypedExtensionConfig(name=f"envoy.load_balancing_policies.{name}", typed_config=AnyMessage.pack(config))
    return LoadBalancingPolicy(policies=[LoadBalancingPolicyPolicy(typed_extension_config=typed)])


def _original_dst(cluster: Cluster, config: ClusterOriginalDstLbConfig) -> None:
    cluster.type = ClusterDiscoveryType.ORIGINAL_DST
    cluster.lb_policy = ClusterLbPolicy.CLUSTER_PROVIDED
    cluster.original_dst_lb_config = config


def _destination(config: ProxyConfig) -> MetadataKey:
    return MetadataKey(key=config.destination_namespace, path=[MetadataKeyPathSegment(key=config.destination_key)])


def _tls(tls: ClientTls, address: str) -> TransportSocket:
    name = tls.server_name or ("" if socket_path(address) is None else authority_of(address))
    context = CommonTlsContext(alpn_protocols=["h2"])
    if tls.verify:
        context.validation_context = CertificateValidationContext(
            trusted_ca=DataSource(filename=str(tls.ca or ssl.get_default_verify_paths().cafile)),
            match_typed_subject_alt_names=[_san(name or split_address(address)[0], dns=bool(name))],
        )
    if tls.certificate is not None:
        context.tls_certificates = [
            TlsCertificate(
                certificate_chain=DataSource(filename=str(tls.certificate)),
                private_key=DataSource(filename=str(tls.key or tls.certificate)),
            )
        ]
    config = UpstreamTlsContext(common_tls_context=context, sni=name)
    return TransportSocket(name="envoy.transport_sockets.tls", typed_config=AnyMessage.pack(config))


def _san(name: str, *, dns: bool) -> SubjectAltNameMatcher:
    kind = SubjectAltNameMatcherSanType.DNS if dns else SubjectAltNameMatcherSanType.IP_ADDRESS
    return SubjectAltNameMatcher(san_type=kind, matcher=StringMatcher(exact=name))
