"""The wheel, installed alone in an empty environment away from the checkout, is the whole suite."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import uv

pytestmark = pytest.mark.program

CHECKOUT = Path(__file__).parents[2]
PACKAGES = {
    *("conformance", "ext_proc", "fake_epp", "fake_kubernetes", "fake_modelserver", "fake_proxy", "real_envoy"),
    *("reference_epp", "reference_gateway"),
}


def command(*arguments, cwd=CHECKOUT, env=None, code=0):
    """Run a program to its end and return its output."""
    environment = {**os.environ, "PYTHONPATH": "", "VIRTUAL_ENV": "", **(env or {})}
    done = subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution of this checkout."""
    directory = tmp_path_factory.mktemp("dist")
    command(sys.executable, "-m", "hatchling", "build", "-d", str(directory))
    return Built(*directory.glob("*.whl"), *directory.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The folder of the commands of an environment that holds the wheel and what it depends on, as locked."""
    directory = tmp_path_factory.mktemp("installed")
    locked, environment = directory / "locked.txt", directory / "environment"
    run_uv = uv.find_uv_bin()
    into = ("--python", str(environment / "bin" / "python"))
    command(run_uv, "export", "-q", "--frozen", "--no-dev", "--no-emit-project", "-o", str(locked))
    command(run_uv, "venv", "-q", "--no-config", "--python", sys.executable, str(environment))
    command(run_uv, "pip", "install", "-q", *into, "--require-hashes", "-r", str(locked))
    command(run_uv, "pip", "install", "-q", *into, "--no-deps", str(built.wheel))
    command(run_uv, "pip", "check", "-q", *into)
    return environment / "bin"


def names_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.smoke
def test_the_wheel_holds_the_packages_and_their_data(built):
    names = names_of(built.wheel)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == PACKAGES
    tracked = command("git", "ls-files", *PACKAGES).split()
    assert not {name for name in tracked if (CHECKOUT / name).exists()} - names
    scenarios = {f"conformance/{name}" for name in command("git", "ls-files", "scenarios").split()}
    assert scenarios
    assert not scenarios - names


def test_the_source_distribution_builds_the_same_wheel(built, tmp_path):
    command("tar", "-xzf", str(built.sdist), "-C", str(tmp_path))
    (source,) = tmp_path.iterdir()
    assert {"LICENSE", "README.md", "pyproject.toml", "Makefile"} <= {path.name for path in source.iterdir()}
    command(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again"), cwd=source)
    (again,) = (tmp_path / "again").glob("*.whl")
    assert names_of(again) == names_of(built.wheel)


def test_the_installed_commands_start(installed, tmp_path):
    assert "0.1.0" in command(str(installed / "epp-conformance"), "--version", cwd=tmp_path)
    assert "EPP-SUB-01" in command(str(installed / "epp-conformance"), "list", cwd=tmp_path)
    assert "--fault" in command(str(installed / "reference-epp"), "--help", cwd=tmp_path)


def test_the_installed_suite_does_the_main_job(installed, tmp_path):
    incomplete = 4  # the smoke set is not a full verdict
    command(str(installed / "epp-conformance"), "run", "--smoke", "--output", "out", cwd=tmp_path, code=incomplete)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["versions"][0]["kinds"] == {"protocol": "conformant", "ext_proc": "conformant"}
    assert (tmp_path / "out" / "evidence.ndjson.gz").stat().st_size


# -- a release ---------------------------------------------------------------------------------------------------------


def clone(folder, *, tag=""):
    """A clean checkout of the last commit, as a release is built from."""
    command("git", "clone", "-q", str(CHECKOUT), str(folder))
    if tag:
        command("git", "tag", "-f", tag, cwd=folder)
    return folder


def dist(folder, code=0):
    """Run the release's script in a checkout; what it says to the terminal."""
    return command(".ci/dist", uv.find_uv_bin(), cwd=folder, code=code)


def test_a_release_has_wheel_source_and_bill_of_materials(tmp_path):
    checkout = clone(tmp_path / "checkout")
    dist(checkout)
    names = sorted(path.name for path in (checkout / "dist").iterdir() if not path.name.startswith("."))
    version = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["version"]
    stem = f"epp_conformance-{version}"
    assert names == ["SHA256SUMS", f"{stem}-py3-none-any.whl", f"{stem}.cdx.json", f"{stem}.tar.gz"]
    command("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=checkout / "dist")

    bill = json.loads((checkout / "dist" / f"{stem}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", version)
    lock = tomllib.loads((checkout / "uv.lock").read_text())["package"]
    (own,) = [one for one in lock if one["name"] == "epp-conformance"]
    locked = {one["name"]: one["version"] for one in lock}
    listed = {one["name"]: one["version"] for one in bill["components"]}
    assert {one["name"] for one in own["dependencies"]} <= listed.keys()
    assert listed.items() <= locked.items()
    assert "mypy" not in listed


@pytest.mark.parametrize(
    ("tag", "changelog", "owner"),
    [("v99.0.0", "## [0.1.0]", "example"), ("v0.1.0", "## 0.1.0", "example"), ("v0.1.0", "## [0.1.0]", "OWNER")],
)
def test_a_release_of_another_version_without_a_changelog_or_an_address_is_refused(tmp_path, tag, changelog, owner):
    checkout = clone(tmp_path / "checkout", tag=tag)
    (checkout / "CHANGELOG.md").write_text(f"{changelog}\n")
    project = checkout / "pyproject.toml"
    project.write_text(re.sub("^(Repository = .*/).*(?=/)", rf"\1{owner}", project.read_text(), flags=re.MULTILINE))
    dist(checkout, code=1)


def test_the_wheel_runs_without_being_installed(built, tmp_path):
    """As `uvx` and `pipx run` do it."""
    flags = ("tool", "run", "--isolated", "-q", "--from", str(built.wheel), "epp-conformance")
    incomplete = 4
    arguments = ("run", "--scenario", "subset.wrong-port", "--output", "out", "--quiet")
    assert "incomplete" in command(uv.find_uv_bin(), *flags, *arguments, cwd=tmp_path, code=incomplete)
