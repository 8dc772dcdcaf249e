"""The real Envoy as a data plane: found, configured, started and driven.

`binary` finds it, `settings` say what it is to be, `variants` are the settings of the field, `bootstrap` and `clusters`
turn them into Envoy's own messages, `rendering` remembers those, `process` runs it, `http_client` and
`kept` send it requests.
Nothing heavy is imported before an Envoy is started.
"""

from real_envoy.binary import EnvoyBinary, find_envoy
from real_envoy.errors import (
    EnvoyDiedError,
    EnvoyError,
    EnvoyFailedError,
    EnvoyMissingError,
    EnvoyRejectedError,
    EnvoyTooOldError,
    EnvoyUnusableError,
)
from real_envoy.http_client import CONNECT, send_request
from real_envoy.http_response import MOST, HttpResponse
from real_envoy.process import Envoy, start_envoy, validate
from real_envoy.rendering import render
from real_envoy.settings import EnvoySettings, Routing, subset_header_value
from real_envoy.variants import VARIANTS, EnvoyVariant

__all__ = [
    "CONNECT",
    "MOST",
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
    "EnvoyVariant",
    "HttpResponse",
    "Routing",
    "find_envoy",
    "render",
    "send_request",
    "start_envoy",
    "subset_header_value",
    "validate",
]
