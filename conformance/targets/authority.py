"""Files of certificates: those by which others are verified, and our own."""

from __future__ import annotations

import ssl
from pathlib import Path

from conformance.targets.paths import no_file


def no_authority(path: str | Path) -> str:
    """Why nothing can be verified by the file at `path`, which has to be PEM; empty if it can."""
    if missing := no_file(path):
        return missing
    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as problem:
        what = "it holds no certificate in PEM form" if isinstance(problem, ssl.SSLError) else problem.strerror
        return f"{path}: {what}"
    return ""


def no_identity(certificate: Path, key: Path) -> str:
    """Why TLS can't be served with the PEM files `certificate` and `key`, which may be one; empty if it can."""
    for path in (certificate, key):
        if missing := no_file(path):
            return missing
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except ssl.SSLError as problem:
        if problem.reason == "KEY_VALUES_MISMATCH":
            return f"the key in {key} is not that of the certificate in {certificate}"
        return f"{certificate} has no certificate in PEM form, or {key} no key"
    except OSError as problem:
        return f"{certificate} and {key}: {problem.strerror}"
    return ""
