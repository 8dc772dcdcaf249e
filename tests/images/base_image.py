"""Makes an image on which the project's Dockerfile builds without a registry, and prints its name.

    python tests/images/base_image.py

It stands in for `python:3-slim`: the Python that runs this script with pip and venv, a shell, and how this machine
reaches package registries.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import docker
import epp_image
import greenlet
import uv

LABEL = "epp-conformance.suite-image"
PROGRAMS = ("sh", "chmod")
UNUSED = epp_image.UNUSED - {"ensurepip"}
SETTINGS = ("PIP_", "UV_", "SSL_CERT_")
"""The beginnings of the environment variables that package clients read."""

CONFIGURATION = ("/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/openssl.cnf")


def main() -> None:
    """Print the image's name, and make it if it is not there yet."""
    sources = b"".join(Path(one).read_bytes() for one in (__file__, epp_image.__file__))
    name = f"epp-conformance-base:{hashlib.sha256(sources + sys.version.encode()).hexdigest()[:16]}"
    client = docker.from_env()
    if not client.images.list(name):
        with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile() as archive:
            epp_image.write(content(Path(scratch)), archive)
            archive.seek(0)
            settings = [f"ENV {name}={value}" for name, value in os.environ.items() if name.startswith(SETTINGS)]
            changes = ["ENV PATH=/usr/bin:/bin", *settings, f"LABEL {LABEL}=base"]
            epp_image.load(client.api, name, archive, changes)
    client.close()
    print(name)


def content(scratch: Path) -> epp_image.Files:
    """The files of the image. `scratch` is for links."""
    python = scratch / "python3"
    python.symlink_to(Path(sys.executable).resolve())
    files = {**epp_image.standard_library(UNUSED), **programs(), **{path: Path(path) for path in CONFIGURATION}}
    files = {name: path for name, path in files.items() if path.is_file()}
    compiled = {"uv": Path(uv.find_uv_bin()), "greenlet": Path(greenlet._greenlet.__file__)}  # that needs C++'s
    libraries = epp_image.shared_libraries({**files, **compiled})
    return {**files, **libraries, "/usr/bin/python3": python}


def programs() -> epp_image.Files:
    """Programs that the Dockerfile runs."""
    found = {name: shutil.which(name) for name in PROGRAMS}
    return {f"/bin/{name}": Path(path).resolve() for name, path in found.items() if path is not None}


if __name__ == "__main__":
    main()
