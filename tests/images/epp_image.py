"""Makes the image of the reference EPP that the tests of `image:` targets run, and prints its name.

    python tests/images/epp_image.py

No registry and no distribution is asked for anything: the image holds the Python that runs this script, the shared
libraries that it needs, the distributions that the reference EPP imports, and the reference EPP. Its name holds the
digest of what went in, so that a second call finds the image already there. It runs as an ordinary user, as images of
endpoint pickers do. Its entry point is Python: `docker run IMAGE -m reference_epp --help`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path, PurePosixPath

import docker

ROOT = Path(__file__).parents[2]
PACKAGES = ("reference_epp", "ext_proc")
DISTRIBUTIONS = (
    *("grpcio", "protobuf", "uvloop", "httptools", "prometheus-client", "pyyaml", "hpack"),
    *("cryptography", "cffi", "pycparser", "typing-extensions"),
)
UNUSED = {
    *("__pycache__", "config", "ensurepip", "idlelib", "lib2to3", "site-packages", "dist-packages"),
    *("test", "tests", "tkinter", "turtledemo"),
}
LABEL = "epp-conformance.test-image"
HOME = "/epp"
ENTRY = (
    f'ENTRYPOINT ["{Path(sys.executable).resolve()}"]',
    f"ENV PYTHONPATH={HOME}",
    "ENV PYTHONDONTWRITEBYTECODE=1",
    "USER 65532",
    f"LABEL {LABEL}=1",
)
ROOT_FOLDER = PurePosixPath("/")

Files = dict[str, Path]


def main() -> None:
    """Print the image's name, and make it if it is not there yet."""
    files = {**standard_library(), **distributions(), **sources()}
    name = f"epp-reference:test-{digest(files)}"
    client = docker.from_env()
    try:
        if not client.images.list(name):
            with tempfile.TemporaryFile() as archive:
                write({**files, **shared_libraries(files)}, archive)
                archive.seek(0)
                load(client.api, name, archive, ENTRY)
            forget_others(client, name)
    finally:
        client.close()
    print(name)


def standard_library(unused: Collection[str] = UNUSED) -> Files:
    """The interpreter with its library, where both are on this machine."""
    paths = sysconfig.get_paths()
    library = Path(paths["stdlib"])
    found = {str(Path(sys.executable).resolve()): Path(sys.executable).resolve()}
    return found | {str(path): path for path in walk(library, unused)}


def distributions() -> Files:
    """What the reference EPP imports from elsewhere."""
    found: Files = {}
    for name in DISTRIBUTIONS:
        for file in distribution(name).files or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
                found[f"{HOME}/{file}"] = path
    return found


def sources() -> Files:
    """The reference EPP itself."""
    return {f"{HOME}/{path.relative_to(ROOT)}": path for name in PACKAGES for path in walk(ROOT / name)}


def walk(folder: Path, unused: Collection[str] = UNUSED) -> Iterator[Path]:
    """The files of a folder that are of use at run time."""
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in unused and not name.startswith("config-")]
        yield from (Path(path, name) for name in names if not name.endswith((".pyc", ".a")))


def shared_libraries(files: Files) -> Files:
    """What the dynamic loader would load for them, and the loader."""
    binaries = [str(path) for path in files.values() if path.suffix == ".so" or os.access(path, os.X_OK)]
    said = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    names = set(re.findall(r"(?:=> |^\s+)(/\S+) \(0x", said, re.MULTILINE))
    return {name: Path(name).resolve() for name in names} | _interpreter(said)


def _interpreter(said: str) -> Files:
    loader = re.search(r"(/lib\S*/ld-\S+)", said)
    return {loader[1]: Path(loader[1]).resolve()} if loader else {}


def digest(files: Files) -> str:
    """A name for their content. Distributions and Python are known by version: their files are many."""
    found = hashlib.sha256(Path(__file__).read_bytes())
    found.update(f"{sys.version} {sysconfig.get_platform()}".encode())
    for name in DISTRIBUTIONS:
        found.update(f"{name} {distribution(name).version}\n".encode())
    for name, path in sorted(sources().items()):
        found.update(name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def write(files: Files, archive: io.BufferedIOBase | tempfile._TemporaryFileWrapper[bytes]) -> None:
    """The file system of the image."""
    with tarfile.open(fileobj=archive, mode="w") as tar:  # type: ignore[arg-type]
        folders = {parent for name in files for parent in PurePosixPath(name).parents if parent != ROOT_FOLDER}
        for folder in sorted(folders):  # those that an archive does not name may be closed to others
            entry = tarfile.TarInfo(str(folder).lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, path in sorted(files.items()):
            entry = tar.gettarinfo(path, arcname=name.lstrip("/"))
            entry.uid = entry.gid = 0
            entry.mode |= 0o444
            with path.open("rb") as content:
                tar.addfile(entry, content)
        scratch = tarfile.TarInfo("tmp")
        scratch.type, scratch.mode = tarfile.DIRTYPE, 0o1777
        tar.addfile(scratch)


def load(api: docker.APIClient, name: str, archive: object, changes: Sequence[str]) -> None:
    """Hand it to the engine, with what a Dockerfile would say of it."""
    repository, _, tag = name.partition(":")
    api.import_image_from_data(archive, repository=repository, tag=tag, changes=list(changes))


def forget_others(client: docker.DockerClient, name: str) -> None:
    """Remove the images of earlier sources."""
    for image in client.images.list(filters={"label": LABEL}):
        if name not in image.tags:
            with contextlib.suppress(docker.errors.APIError):  # it is in use
                client.images.remove(image.id)


if __name__ == "__main__":
    main()
