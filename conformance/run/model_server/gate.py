"""The gate of a model server: whether what answers is one at all, told in a sentence if it is not."""

from __future__ import annotations

from urllib.parse import urlsplit

from conformance.errors import GateFailedError, IncompleteError, TargetUnreachableError
from conformance.printable import plural
from conformance.reading.server_answer import json_of
from conformance.run.model_server.client import Got
from conformance.targets.model_server import ModelServerProfile

ENDING = 8.0
"""Seconds that the answers of the gate may take from their first byte to their last."""

LISTING = 10.0
"""Seconds within which a server that runs already must begin to list its models: nothing is computed for that."""

STARTING = (404, 425, 500, 502, 503)
"""What servers answer while they load a model."""

_KEY = "give the key in its profile: requests: {secretHeaders: {authorization: Bearer …}}"


def trouble(got: Got, url: str, path: str) -> IncompleteError | None:
    """Why an answer to `path` is none of a model server; None if it may be one."""
    where = f"{url}{path}"
    if got.outcome == "endless":
        text = f"the answer of {where} does not end: {got.details}"
        return GateFailedError(text, hint="is a model server there, and no stream of something else?")
    if got.outcome != "response":
        hint = "is it running, and is this its address?"
        if "expired" in got.details:
            hint = "renew the certificate"
        elif "TLS" in got.details or "certificate" in got.details:
            hint = "give the URL with the right scheme, http or https, and --ca FILE for a private certificate"
        return TargetUnreachableError(f"{where} can't be reached: {got.details}", hint=hint)
    status = got.status or 0
    if 300 <= status < 400:
        target = next((v.decode("latin-1") for n, v in got.headers if n == b"location"), "nowhere")
        return GateFailedError(f"{where} is redirected to {_safe(target)}", hint="give the URL of the server itself")
    if status in (401, 403):
        return GateFailedError(f"{where} is answered {status}: the server wants a key, or another one", hint=_KEY)
    kind = got.content_type.split(";")[0].strip() or "no content type"
    if got.body.lstrip()[:1] == b"<" or "html" in kind:
        text = f"{where} is answered {status} with a page of HTML: that is no model server"
        return GateFailedError(text, hint="give the URL where its API is, not that of a website or a dashboard")
    if b"HTTPS" in got.body[:400] and status == 400 and url.startswith("http:"):
        return GateFailedError(f"{where} speaks TLS", hint="give its URL with https://")
    return None


def models_of(got: Got) -> tuple[str, ...]:
    """The models that an answer to `/v1/models` lists; () if it is none."""
    body = json_of(got.body)
    data = body.get("data") if isinstance(body, dict) else None
    cards = data if isinstance(data, list) else []
    return tuple(str(card["id"]) for card in cards if isinstance(card, dict) and isinstance(card.get("id"), str))


def serves(got: Got) -> bool:
    """Whether an answer to a plain request is one of a model server: JSON with choices."""
    body = json_of(got.body)
    return got.status == 200 and isinstance(body, dict) and isinstance(body.get("choices"), list)


def refused(profile: ModelServerProfile, url: str, got: dict[str, Got]) -> GateFailedError:
    """The error where no API serves a plain request."""
    said = "; ".join(f"{path} {_said(one)}" for path, one in got.items())
    model = profile.requests.model if "model" in profile.requests.model_fields_set else "the model that it lists first"
    hint = f"it must serve completions for {model}: name another with --model"
    return GateFailedError(f"the server at {url} serves no plain request: {said}", hint=hint)


def _said(got: Got) -> str:
    if got.outcome != "response":
        return got.details
    kind = got.content_type.split(";")[0] or "no content type"
    return f"is answered {got.status} ({kind}, {plural(len(got.body), 'byte')})"


def _safe(location: str) -> str:
    """Where a redirect goes, without what may be secret in a query."""
    parts = urlsplit(location)
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else parts.path
