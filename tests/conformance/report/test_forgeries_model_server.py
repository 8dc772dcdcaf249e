"""Reports of model servers: honest ones are verified, and each forgery of the table is caught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from forging import real_reports
from forging.forger import Forger
from forging.remembered import verified
from forging.server_forgeries import FORGERIES, RIGHT, WRONG

from conformance.report.document.model import Report
from conformance.report.verify.verification import Verification
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import Instance, load
from conformance.targets.model_server import ModelServerProfile

FLAGS = {RIGHT: "--variant=right", WRONG: "--fault=queue-always-0"}


def server(flag: str) -> ModelServerProfile:
    """A fake model server that the suite starts, and little load."""
    command = ["{python}", "-m", "fake_modelserver", "serve", flag, "--listen=127.0.0.1:{port}"]
    return ModelServerProfile.model_validate(
        {
            "role": "model-server",
            "start": {"command": command},
            "requests": {"model": "small-model"},
            "adapters": ["tuned-a", "tuned-b"],
            "limits": {"concurrency": 16, "tokens": 64},
            "protocolVersions": ["next"],
        }
    )


@pytest.fixture(scope="module")
def instances(catalogue: Catalogue) -> tuple[Instance, ...]:
    return tuple(one for one in load(catalogue) if one.role == "model-server")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, instances: tuple[Instance, ...]) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def report(name: str) -> Path:
        if name not in made:
            made[name] = real_reports.make(server(FLAGS[name]), tmp_path_factory.mktemp(name), instances)
        return made[name]

    return report


@pytest.fixture
def check(instances: tuple[Instance, ...]) -> Callable[[Path], Verification]:
    return lambda folder: verified(folder, instances)


@pytest.mark.parametrize("name", [RIGHT, WRONG])
def test_an_honest_report_is_verified(reports, check, catalogue, tmp_path, name) -> None:
    report = Report.model_validate_json((reports(name) / "report.json").read_text())
    assert report.result.value == ("conformant" if name == RIGHT else "non-conformant"), report.result
    assert [(step.name, step.details) for step in check(reports(name)).steps if step.answer != "pass"] == []
    Forger(reports(name)).write(tmp_path / "forged", catalogue)
    assert check(tmp_path / "forged").answer == "pass"


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_caught(reports, check, catalogue, tmp_path, name: str) -> None:
    of, step, change = FORGERIES[name]
    forger = Forger(reports(of))
    change(forger)
    forger.write(tmp_path / "forged", catalogue)
    verification = check(tmp_path / "forged")
    failed = {one.name for one in verification.steps if one.answer == "fail"}
    if step is None:
        assert failed == set()
        assert verification.notes
    else:
        assert step in failed
