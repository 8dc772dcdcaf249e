"""Files and folders that are named to the suite."""

from __future__ import annotations

import errno
import os
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
