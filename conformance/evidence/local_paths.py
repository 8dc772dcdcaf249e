"""Paths of the machine that a run was on: in evidence, which may be published, only their last part is of use."""

from __future__ import annotations

import functools
import re
from pathlib import Path

_FOLDERS = re.compile(r"(?:(?<![\w/:.…])|(?<=\\[nt]))/([\w.+~@-]+)/(?:[\w.+~@-]+/)*")


def without_folders(text: str) -> str:
    """`text` with `…/` for the folders of each path that begins in one of this machine: `…/epp` for `/home/me/epp`.

    Other paths, such as `/v1/models`, stay.
    """
    return _FOLDERS.sub(lambda found: "…/" if _is_here(found[1]) else found[0], text)


@functools.cache
def _is_here(name: str) -> bool:
    return Path("/", name).is_dir()
