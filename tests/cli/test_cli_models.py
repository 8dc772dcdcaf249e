"""`run` on targets that know models: which requests for which models are theirs to refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.program

COMMAND = (
    *(sys.executable, "-m", "reference_epp", "--listen", "127.0.0.1:{port}", "--endpoints-file", "{endpointsFile}"),
    *("--protocol-version", "{version}", "--model", "llama-3", "--model", "batch", "--log-level", "error"),
)


def found(cli: Any, folder: Path, *arguments: str, command: tuple[str, ...] = COMMAND, **requests: Any) -> list[Any]:
    """What a run in version 0.4.0 finds wrong: requirement and verdict."""
    profile = {
        "name": "knows-models",
        "start": {"command": command},
        "discovery": {"file": {"reread": 0.05}},
        "requests": {"unknownModel": "no-such-model", **requests},
        "bodyModes": ["full-duplex"],
        "protocolVersions": ["0.3.0", "0.4.0"],
    }
    path = folder / "profile.yaml"
    path.write_text(json.dumps(profile))
    ran = cli("run", "--profile", path, "--protocol-version", "0.4.0", *arguments, "-o", folder / "r", "--jobs", "1")
    assert ran.code in (1, 4), ran.out + ran.err
    document = json.loads((folder / "r" / "report.json").read_text())
    verdicts = {"fail", "warn", "error", "inconclusive"}
    return [(row["requirement"], row["verdict"]) for row in document["results"] if row["verdict"] in verdicts]


def test_a_request_for_an_unknown_model_names_none_that_marks_sheddable_ones(cli, tmp_path: Path) -> None:
    """A target that knows sheddable requests by their model serves that one: an endpoint for it is right."""
    assert found(cli, tmp_path, "-k", "model.unknown", sheddable={"model": "batch"}) == []


def test_names_that_are_nearly_known_are_unknown(cli: Any, tmp_path: Path) -> None:
    """Also where names have no letters, and the report of such requests is verified."""
    sloppy = (*COMMAND, "--fault", "models-in-any-case")
    assert found(cli, tmp_path, "-k", "model.*", command=sloppy) == [("EPP-MODEL-01", "fail")]
    assert cli("report", "verify", tmp_path / "r").code == 0
    named = tuple("7" if one == "llama-3" else one for one in COMMAND)
    assert found(cli, tmp_path, "-k", "model.*", command=named, model="7") == []
    assert cli("report", "verify", tmp_path / "r").code == 0
