"""The bootstrap as Envoy reads it: made once of typed messages, remembered on disk, and filled in for each start.

Importing envoy-data-plane and building the messages takes one to four seconds. What they are made into depends on the
settings but not on what changes from start to start (endpoints, names, secrets), so the document without those, its
shape, is kept under `$XDG_CACHE_HOME/epp-conformance` (default `~/.cache`); a start then costs what Envoy's does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ext_proc.http2.address import authority_of, format_address, socket_path, split_address
from real_envoy.endpoints import load_assignment
from real_envoy.settings import EnvoySettings

ACCESS_LOG = "access.log"

_MADE_BY = ("bootstrap.py", "clusters.py", "endpoints.py", "settings.py")
"""The modules that decide what a shape looks like."""


def render(gateways: Mapping[str, EnvoySettings]) -> bytes:
    """The bootstrap of an Envoy with these gateways, as JSON.

    Raises `ValueError` if there are none, or they can't share a process.
    """
    if not gateways:
        raise ValueError("an Envoy needs at least one gateway")
    shapes = tuple((name, _shape_of(name, settings)) for name, settings in gateways.items())
    texts = dict(text for name, settings in gateways.items() for text in _texts(name, settings))
    document = _filled(json.loads(_rendered(shapes)), texts)
    clusters = {cluster["name"]: cluster for cluster in document["staticResources"]["clusters"]}
    for name, settings in gateways.items():
        epp = f"{name}-epp"
        clusters[epp]["loadAssignment"] = load_assignment(epp, (settings.epp,))
        if settings.knows_pool and not settings.changing_pool:
            pool = pool_assignment(name, settings, settings.config.pool)
            clusters[pool["clusterName"]]["loadAssignment"] = pool
    return json.dumps(document).encode()


def pool_assignment(gateway: str, settings: EnvoySettings, endpoints: tuple[str, ...]) -> dict[str, Any]:
    """The endpoints of a gateway's pool as its cluster takes them."""
    label = settings.config.destination_key if settings.labels_endpoints else ""
    return load_assignment(f"{gateway}-pool", endpoints, label=label)


# -- shapes ------------------------------------------------------------------------------------------------------------


def _shape_of(name: str, settings: EnvoySettings) -> EnvoySettings:
    """The settings with something constant in place of all that `render` fills in."""
    epp = "unix:/epp"
    if socket_path(settings.epp) is None:
        epp = format_address(split_address(settings.epp)[0], 1)  # TLS may ask for a certificate of this very address
    authority, *values = (placeholder for placeholder, _ in _texts(name, settings))
    return dataclasses.replace(
        settings,
        epp=epp,
        authority=authority,
        epp_metadata=tuple(
            (key, value.encode()) for (key, _), value in zip(settings.epp_metadata, values, strict=True)
        ),
        config=dataclasses.replace(settings.config, pool=("192.0.2.1:1",) if settings.config.pool else ()),
    )


def _texts(name: str, settings: EnvoySettings) -> Iterator[tuple[str, str]]:
    """What stands in a shape, and what is meant."""
    yield f"authority.{name}.invalid", settings.authority or authority_of(settings.epp)
    for number, (_, value) in enumerate(settings.epp_metadata):
        yield f"metadata-{number}.{name}.invalid", value.decode("latin-1").replace("%", "%%")


def _filled(value: Any, texts: Mapping[str, str]) -> Any:
    match value:
        case str():
            return texts.get(value, value)
        case dict():
            return {key: _filled(one, texts) for key, one in value.items()}
        case list():
            return [_filled(one, texts) for one in value]
        case _:
            return value


@functools.lru_cache(maxsize=32)
def _rendered(shapes: tuple[tuple[str, EnvoySettings], ...]) -> str:
    file = _cached(shapes)
    with contextlib.suppress(OSError, ValueError):
        text = file.read_text(encoding="utf-8")
        json.loads(text)
        return text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # envoy-data-plane's own dealings with pydantic
        from real_envoy.bootstrap import bootstrap

        text = bootstrap(dict(shapes), access_log=Path(ACCESS_LOG)).to_json()
    with contextlib.suppress(OSError):  # a machine without a place for it is slower, and right
        _keep(file, text)
    return text


def _cached(shapes: tuple[tuple[str, EnvoySettings], ...]) -> Path:
    found = hashlib.sha256(f"{version('envoy-data-plane')} {shapes!r}".encode())
    for module in _MADE_BY:
        found.update(Path(__file__).with_name(module).read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "epp-conformance" / f"envoy-{found.hexdigest()[:32]}.json"


def _keep(file: Path, text: str) -> None:
    """Write `file` in one step: other processes read it at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    Path(fresh).replace(file)
