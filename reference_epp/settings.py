"""What the command line says, parsed once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from reference_epp.names import METADATA_NAMESPACE, SUBSET_NAMESPACE
from reference_epp.tls import Tls
from reference_epp.versions import VERSIONS, Version

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an EPP is to run. Times are in seconds."""

    listen: tuple[str, int]
    endpoints_file: Path
    version: Version = VERSIONS["1.0.0"]
    models: frozenset[str] = frozenset()
    objectives: Mapping[str, int] = field(default_factory=dict)
    scrape_interval: float = 0.05
    staleness: float = 2.0
    patience: float = 0.1
    queue_threshold: int = 5
    kv_threshold: float = 0.8
    max_endpoints: int = 2
    stop_deadline: float = 5.0
    max_body: int = 64 * 1024 * 1024
    config_file: Path | None = None
    config_text: str | None = None
    tls: Tls | None = None
    metadata_namespace: str = METADATA_NAMESPACE
    subset_namespace: str = SUBSET_NAMESPACE
    log_level: str = "info"
    metrics_port: int | None = None
    health_port: int | None = None
    fault: str | None = None
    variants: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """A request to print `what`, `faults` or `variants`, as JSON."""

    what: str


def parse(arguments: Sequence[str] | None = None) -> Settings | Listing:
    """Read the command line; exits with status 2 and a message if it is wrong."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list_faults or options.list_variants:
        return Listing("faults" if options.list_faults else "variants")
    if options.endpoints_file is None:
        parser.error("--endpoints-file is required: a file with one ip:port a line")
    if (options.tls_cert is None) != (options.tls_key is None):
        parser.error("--tls-cert and --tls-key belong together")
    if options.tls and options.tls_cert:
        parser.error("--tls self-signed and --tls-cert exclude each other")
    if options.tls_client_ca and not (options.tls or options.tls_cert):
        parser.error("--tls-client-ca needs --tls self-signed or --tls-cert")
    tls = Tls(certificate=options.tls_cert, key=options.tls_key, client_ca=options.tls_client_ca)
    same = {item.name: getattr(options, item.name) for item in fields(Settings) if hasattr(options, item.name)}
    parsed = {
        "version": VERSIONS[options.protocol_version],
        "models": frozenset(options.model),
        "objectives": dict(options.objective),
        "tls": tls if options.tls or options.tls_cert else None,
    }
    return Settings(**same | parsed)


def seconds(text: str) -> float:
    """Read a duration: `50ms`, `2s`, `1m`, or plain seconds. Raises `argparse.ArgumentTypeError`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)?", text, re.ASCII)
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration above zero; write 50ms, 2s or 1m")
    return float(found[1]) * _UNITS[found[2] or "s"]


def listen_address(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`, brackets around IPv6, or `unix:/PATH`, which is taken for a host without a port.

    Raises `argparse.ArgumentTypeError`.
    """
    if text.startswith("unix:"):
        return text, 0
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is neither HOST:PORT nor unix:/PATH")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def _objective(text: str) -> tuple[str, int]:
    name, equals, priority = text.partition("=")
    if not (name and equals and re.fullmatch(r"-?\d+", priority, re.ASCII)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PRIORITY with a whole number")
    return name, int(priority)


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share above 0 and at most 1")
    return share


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="reference-epp", description="A small, correct endpoint picker.")
    add = parser.add_argument
    add("--listen", type=listen_address, default=("127.0.0.1", 9002), metavar="HOST:PORT",
        help="where to serve, or unix:/PATH; port 0: any, printed as JSON (default 127.0.0.1:9002)")  # fmt: skip
    add("--endpoints-file", type=Path, metavar="PATH", help="one ip:port a line; read again when it changes")
    add("--protocol-version", choices=VERSIONS, default="1.0.0", help="(default 1.0.0)")
    add("--model", action="append", default=[], metavar="NAME",
        help="an InferenceModel, repeatable; 0.3.0 and 0.4.0 answer 404 for other models if any is given")  # fmt: skip
    add("--objective", action="append", type=_objective, default=[], metavar="NAME=PRIORITY",
        help="an InferenceObjective, repeatable; below zero is sheddable")  # fmt: skip
    add("--scrape-interval", type=seconds, default=0.05, help="(default 50ms)")
    add("--staleness", type=seconds, default=2.0, help="age at which gauges say nothing any more (default 2s)")
    add("--patience", type=seconds, default=0.1,
        help="how long to wait for a body if the data plane does not say its body modes (default 100ms)")  # fmt: skip
    add("--queue-threshold", type=_positive, default=5, help="more waiting requests are heavy load (default 5)")
    add("--kv-threshold", type=_share, default=0.8, help="more KV cache in use is heavy load (default 0.8)")
    add("--max-endpoints", type=_positive, default=2, metavar="N",
        help="endpoints in a list, in versions that have lists (default 2)")  # fmt: skip
    add("--stop-deadline", type=seconds, default=5.0,
        help="how long open streams may take to end after SIGTERM (default 5s)")  # fmt: skip
    add("--max-body", type=_positive, default=64 * 1024 * 1024, metavar="BYTES",
        help="larger request bodies get 413 (default 64 MiB)")  # fmt: skip
    config = parser.add_mutually_exclusive_group()
    config.add_argument("--config-file", type=Path, metavar="PATH",
        help="an EndpointPickerConfig in YAML with plugins of the type request-attribute-reporter")  # fmt: skip
    config.add_argument("--config-text", metavar="YAML", help="the same on the command line")
    add("--tls", choices=["self-signed"], help="serve TLS with a certificate made now")
    add("--tls-cert", type=Path, metavar="PEM", help="serve TLS with this certificate")
    add("--tls-key", type=Path, metavar="PEM", help="its private key")
    add("--tls-client-ca", type=Path, metavar="PEM", help="demand client certificates signed by this authority")
    add("--metadata-namespace", default=METADATA_NAMESPACE, help=f"(default {METADATA_NAMESPACE})")
    add("--subset-namespace", default=SUBSET_NAMESPACE, help=f"(default {SUBSET_NAMESPACE})")
    add("--log-level", choices=["debug", "info", "warning", "error"], default="info", help="(default info)")
    add("--metrics-port", type=int, metavar="PORT", help="serve Prometheus metrics")
    add("--health-port", type=int, metavar="PORT", help="serve gRPC health here too, without TLS")
    deviation = parser.add_mutually_exclusive_group()
    deviation.add_argument("--fault", metavar="NAME", help="break one rule on purpose; see --list-faults")
    deviation.add_argument("--variant", dest="variants", action="append", default=[], metavar="NAME",
        help="conform in another way, repeatable; see --list-variants")  # fmt: skip
    add("--list-faults", action="store_true", help="print the faults as JSON")
    add("--list-variants", action="store_true", help="print the conforming variants as JSON")
    return parser
