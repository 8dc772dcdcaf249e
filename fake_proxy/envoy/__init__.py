"""The real Envoy as a data plane: found, configured, started and driven.

`binary` finds it, `settings` say what it is to be, `variants` are the settings of the field, `bootstrap` and `clusters`
turn them into Envoy's own messages, `rendering` remembers those, `process` runs it, `http_client` sends it requests.
Nothing heavy is imported before an Envoy is started.
"""

from fake_proxy.envoy.binary import EnvoyBinary, find_envoy
from fake_proxy.envoy.errors import (
    EnvoyDiedError,
    EnvoyError,
    EnvoyFailedError,
    EnvoyMissingError,
    EnvoyRejectedError,
    EnvoyTooOldError,
    EnvoyUnusableError,
)
from fake_proxy.envoy.http_client import HttpResponse, send_request
from fake_proxy.envoy.process import Envoy, start_envoy, validate
from fake_proxy.envoy.rendering import render
from fake_proxy.envoy.settings import EnvoySettings, Routing, subset_header_value
from fake_proxy.envoy.variants import VARIANTS, Variant

__all__ = [
    "VARIANTS",
    "Envoy",
    "EnvoyBinary",
    "EnvoyDiedError",
    "EnvoyError",
    "EnvoyFailedError",
    "EnvoyMissingError",
    "EnvoyRejectedError",
    "EnvoySettings",
    "EnvoyTooOldError",
    "EnvoyUnusableError",
    "HttpResponse",
    "Routing",
    "Variant",
    "find_envoy",
    "render",
    "send_request",
    "start_envoy",
    "subset_header_value",
    "validate",
]
