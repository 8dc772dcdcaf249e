"""Files and folders that are named to the suite: those of certificates, by which others are verified, and our own."""

from __future__ import annotations

import errno
import os
import ssl
from pathlib import Path


def no_file(path: str | Path) -> str:
    """Why the file at `path` can't be read as one; empty if it can."""
    path = Path(path)
    if impossible := _too_long(path):
        return impossible
    if path.is_dir():
        return f"{path} is a folder, not a file"
    if path.exists() and not path.is_file():  # such as a pipe, which can be read once only
        return f"{path} is not a regular file"
    return "" if path.exists() else f"there is no file {path}"


def no_folder(path: str | Path) -> str:
    """Why there is no folder at `path`; empty if there is one."""
    return _too_long(path) or ("" if Path(path).is_dir() else f"there is no folder {path}")


def _too_long(path: str | Path) -> str:
    """That no file system has a `path` as long as that; empty if it may be there."""
    try:
        os.stat(path)  # noqa: PTH116 - of a `Path`, later versions of Python tell less
    except OSError as problem:
        if problem.errno == errno.ENAMETOOLONG:
            return f"a path can't be as long as this one: {path}"
    return ""


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
