"""The repository's address in the files that name it.

`project.urls` in pyproject.toml defines it. A release or a fork changes that line and runs `make docs`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
CLONE = r"(?<=git clone --depth 1 )\S+"
USES = r"(?<=uses: )\S+(?=@COMMIT)"
IMPLEMENTATION = r"(?<=^  url: )\S+|(?<=^  contact: \[)[^\]]+"
PLACES = {
    "CONTRIBUTING.md": CLONE,
    "README.md": CLONE,
    "conformance/targets/profiles/go-epp.yaml": IMPLEMENTATION,
    "conformance/targets/profiles/reference.yaml": IMPLEMENTATION,
    "docs/README.md": CLONE,
    "docs/how-to/ci.md": rf"{USES}|(?<=`git\+)https://[^`]+",
    "docs/tutorial/five-minutes.md": CLONE,
    "examples/ci/epp-conformance.sh": r"(?<=git\+)https://\S+",
    "examples/ci/github-actions.yaml": USES,
    "examples/ci/gitlab-ci.yaml": r"(?<=\$CI_SERVER_FQDN/)\S+(?=/epp-conformance@COMMIT)",
}
"""By file, the pattern of each address in it."""


def address() -> str:
    """The address that `project.urls` defines."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    return found


def pages() -> Iterator[tuple[Path, str]]:
    """Each file that names the address, with the text that it must have. Raises LookupError if it has no place."""
    url = address()
    path = urlsplit(url).path.strip("/")
    for name, pattern in PLACES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        new, count = re.subn(pattern, lambda old: url if "://" in old[0] else path, text, flags=re.MULTILINE)
        if count == 0:
            raise LookupError(f"{name} has no place for the address of the repository")
        yield ROOT / name, new
