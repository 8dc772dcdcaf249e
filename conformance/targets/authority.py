"""The file of certificates that a target's own must be signed by."""

from __future__ import annotations

import ssl
from pathlib import Path


def no_authority(path: str | Path) -> str:
    """Why nothing can be verified by the file at `path`, which has to be PEM; empty if it can."""
    if not Path(path).is_file():
        return f"there is no file {path}"
    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError) as problem:
        what = "it holds no certificate in PEM form" if isinstance(problem, ssl.SSLError) else problem.strerror
        return f"{path}: {what}"
    return ""
