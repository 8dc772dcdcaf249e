"""The bootstrap: remembered without what changes and what is secret, and the same when it is remembered."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from real_envoy import VARIANTS, EnvoySettings, render, rendering

SETTINGS = dataclasses.replace(
    VARIANTS["override-host"].settings(epp="127.0.0.1:9", pool=("127.0.0.1:8000",), authority="epp.example:9002"),
    epp_metadata=((b"authorization", b"Bearer s3cret"),),
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rendering._rendered.cache_clear()
    return tmp_path / "epp-conformance"


def _kept(cache: Path) -> list[Path]:
    return list(cache.iterdir())


def test_what_is_remembered_serves_other_addresses_and_holds_no_secret(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = render({"gw": SETTINGS})
    (kept,) = _kept(cache)
    assert b"s3cret" in made
    assert b"epp.example:9002" in made
    assert "s3cret" not in kept.read_text()
    assert "epp.example" not in kept.read_text()

    rendering._rendered.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "real_envoy.bootstrap", None)  # it can't be imported now
    assert render({"gw": SETTINGS}) == made
    other = dataclasses.replace(SETTINGS, epp="127.0.0.1:10", authority="")
    document = json.loads(render({"gw": other}))
    (epp,) = [one for one in document["staticResources"]["clusters"] if one["name"] == "gw-epp"]
    address = epp["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"]["socketAddress"]
    assert address == {"address": "127.0.0.1", "portValue": 10}
    assert '"authority": "127.0.0.1:10"' in json.dumps(document)


def test_what_can_not_be_read_is_made_anew(cache: Path) -> None:
    made = render({"gw": SETTINGS})
    (kept,) = _kept(cache)
    kept.write_text("{")
    rendering._rendered.cache_clear()
    assert render({"gw": SETTINGS}) == made
    assert json.loads(kept.read_text())


def test_other_settings_are_another_shape(cache: Path) -> None:
    render({"gw": SETTINGS})
    render({"gw": dataclasses.replace(SETTINGS, fresh_connections=True)})
    assert len(_kept(cache)) == 2


def test_without_a_place_to_remember_it_is_made_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert isinstance(SETTINGS, EnvoySettings)
    assert b"override_host" in render({"gw": SETTINGS})
    assert not cache.exists()
