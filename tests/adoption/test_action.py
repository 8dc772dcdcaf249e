"""The recipes for CI: their steps are taken out and run, as the CI would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.program

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
SPECIFICATION, COMPONENT = (ROOT / "templates" / "epp-conformance.yml").read_text().split("\n---\n")
PROFILE = """\
name: mine
start:
  command: [reference-epp, "--listen=127.0.0.1:{port}", "--endpoints-file={endpointsFile}"%s]
discovery:
  file: {}
protocolVersions:
  - 0.2.0
  - 1.0.0
"""
FAULT = ', "--fault=subset-by-address"'
SUBSET = "--scenario subset.wrong-port --scenario 'subset.pick-stays-*'"


@pytest.fixture
def project(tmp_path):
    """A repository of an EPP that breaks a rule, with its profile on a path with a space."""
    (tmp_path / "my epp").mkdir()
    (tmp_path / "my epp" / "profile.yaml").write_text(PROFILE % FAULT)
    return tmp_path


class Runner:
    """Runs the steps of the composite action in order, as GitHub's runner does, as far as the action asks for it.

    Steps that use another action are not run: `used` are their names, in order.
    """

    def __init__(self, workspace: Path, **inputs: str) -> None:
        given = {name.replace("_", "-"): text for name, text in inputs.items()}
        self.inputs = {name: given.get(name, one.get("default", "")) for name, one in ACTION["inputs"].items()}
        assert given.keys() <= self.inputs.keys()
        self.workspace = workspace
        self.files = {name: workspace / f".{name}" for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_PATH")}
        for path in self.files.values():
            path.touch()
        self.log = ""
        self.code = 0
        self.used: list[str] = []

    def run(self) -> Runner:
        for step in ACTION["runs"]["steps"]:
            if self.code and not step.get("if", "").startswith("always()"):
                continue
            if "steps.report.outputs.result != ''" in step.get("if", "") and not self.outputs.get("result"):
                continue
            if "uses" in step:
                self.used.append(step["uses"].partition("@")[0])
                continue
            done = self._run(step)
            self.log += done.stdout + done.stderr
            self.code = self.code or done.returncode
        return self

    def _run(self, step: dict) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([*reversed(self.files["GITHUB_PATH"].read_text().split()), os.environ["PATH"]])
        given = {name: self._expanded(text) for name, text in step.get("env", {}).items()}
        files = {name: str(file) for name, file in self.files.items()}
        environment = {**os.environ, "PATH": path, "CI": "true", "COLUMNS": "400", **files, **given}
        assert "${{" not in step["run"], "an input that is pasted into a script could run anything"
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.workspace, env=environment, capture_output=True, text=True, timeout=250, check=False,
        )  # fmt: skip

    def _expanded(self, text: str) -> str:
        values = {
            **{f"inputs.{name}": value for name, value in self.inputs.items()},
            "github.action_path": str(ROOT),
            "runner.temp": str(self.workspace / "temp"),
            "steps.python.outputs.python-path": sys.executable,
        }

        def value(found: re.Match[str]) -> str:
            return next((values[name] for name in found[1].split(" || ") if values[name]), "")

        return re.sub(r"\$\{\{ (.+?) \}\}", value, text)

    @property
    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.files["GITHUB_OUTPUT"].read_text().splitlines())


@pytest.fixture
def installed(monkeypatch):
    """The suite of this environment on PATH; what stands for the environments that the recipes make is made of it."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def quick(installed, monkeypatch):
    """Nothing is installed: the step of that name is left out, and the suite is on PATH."""
    steps = [step for step in ACTION["runs"]["steps"] if step.get("name") != "Install the suite"]
    monkeypatch.setitem(ACTION, "runs", {**ACTION["runs"], "steps": steps})


def test_the_action_installs_the_suite_of_its_own_commit(project):
    runner = Runner(project, epp="reference", arguments=SUBSET).run()
    program = Path((project / ".GITHUB_PATH").read_text().strip(), "epp-conformance")
    assert program.is_file()
    assert runner.used == ["actions/setup-python", "actions/cache", "actions/upload-artifact"]
    assert (runner.code, runner.outputs) == (4, {"result": "incomplete"}), runner.log


@pytest.mark.smoke
def test_a_failure_is_an_annotation_of_the_line_that_claims_the_version(quick, project):
    runner = Runner(project, profile="my epp/profile.yaml", arguments=SUBSET).run()
    assert runner.code == 1
    assert runner.outputs == {"result": "non-conformant"}
    (command,) = [line for line in runner.log.splitlines() if line.startswith("::error")]
    assert command.startswith("::error file=my epp/profile.yaml,line=8,title=EPP-SUB-06 (1.0.0)%3A ")
    assert "EPP-SUB-06" in runner.files["GITHUB_STEP_SUMMARY"].read_text()
    assert (project / "conformance-report" / "report.html").is_file()


@pytest.mark.parametrize("wrong", [{"epp": "reference", "arguments": "--no-such-flag"}, {}])
def test_a_run_that_did_not_begin_does_not_keep_the_previous_result(quick, project, wrong):
    before = Runner(project, epp="reference", arguments=SUBSET).run()
    assert before.outputs == {"result": "incomplete"}, before.log
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        before.files[name].write_text("")
    runner = Runner(project, **wrong).run()
    assert (runner.code, runner.outputs) == (2, {}), runner.log
    assert runner.files["GITHUB_STEP_SUMMARY"].read_text() == ""
    assert "actions/upload-artifact" not in runner.used


def test_a_selection_fails_the_job_unless_that_is_accepted(quick, project):
    (project / "my epp" / "profile.yaml").write_text(PROFILE % "")
    assert Runner(project, profile="my epp/profile.yaml", arguments=SUBSET).run().code == 4
    accepting = Runner(project, profile="my epp/profile.yaml", arguments=SUBSET, accept_incomplete="true").run()
    assert (accepting.code, accepting.outputs) == (0, {"result": "incomplete"})


def test_an_endpoint_picker_out_of_reach_fails_the_job_whatever_is_accepted(quick, project):
    arguments = "--endpoints 127.0.0.1:18472 --smoke"
    dead = Runner(project, epp="127.0.0.1:9", arguments=arguments, accept_incomplete="true").run()
    assert (dead.code, dead.outputs) == (4, {"result": "incomplete"})


def test_without_inputs_the_action_says_what_to_do(project):
    runner = Runner(project).run()
    assert runner.code == 2
    assert runner.log.startswith("::error title=EPP conformance::Nothing to test: give the input 'profile'")


def test_a_quote_that_is_not_closed_runs_nothing(quick, project):
    runner = Runner(project, epp="reference", arguments="--smoke --seed '1").run()
    assert (runner.code, runner.outputs) == (2, {})
    assert "::error title=EPP conformance::The input 'arguments' has a quote that is not closed" in runner.log
    assert not (project / "conformance-report").exists()


def test_a_runner_with_windows_is_refused(project, monkeypatch):
    monkeypatch.setenv("RUNNER_OS", "Windows")
    runner = Runner(project, epp="reference").run()
    assert runner.code == 2
    assert runner.log == "::error title=EPP conformance::The suite does not run on Windows: use a runner with Linux\n"


def test_a_wrong_profile_is_an_annotation_of_its_line(quick, project):
    profile = project / "my epp" / "profile.yaml"
    profile.write_text(profile.read_text().replace("discovery:", "discvery:"))
    runner = Runner(project, profile="my epp/profile.yaml").run()
    assert (runner.code, runner.outputs) == (2, {})
    (matcher,) = json.loads((ROOT / ".github" / "epp-conformance-matcher.json").read_text())["problemMatcher"]
    (pattern,) = matcher["pattern"]
    found = [match for line in runner.log.splitlines() if (match := re.search(pattern["regexp"], line))]
    assert ("my epp/profile.yaml", "4") in [(match[pattern["file"]], match[pattern["line"]]) for match in found]


@pytest.mark.smoke
def test_arguments_are_words_and_run_nothing(quick, project):
    runner = Runner(
        project, profile="my epp/profile.yaml", arguments="--scenario '$(touch ran)' --scenario `touch ran`"
    )
    assert runner.run().code == 2
    assert not (project / "ran").exists()


# -- GitLab ------------------------------------------------------------------------------------------------------------


def job(**given: str) -> dict:
    """The job that the component makes of those inputs."""
    inputs = yaml.safe_load(SPECIFICATION)["spec"]["inputs"]
    values = {name: given.get(name, (one or {}).get("default")) for name, one in inputs.items()}
    assert None not in values.values()
    assert given.keys() <= inputs.keys()

    def value(found: re.Match[str]) -> str:
        one = values[found[1]]
        return one if isinstance(one, str) else json.dumps(one)  # GitLab puts the text of the value there

    text = re.sub(r"\$\[\[ inputs\.([\w-]+) \]\]", value, COMPONENT)
    (made,) = yaml.safe_load(text).values()
    return made


def run_job(made: dict, cwd: Path) -> subprocess.CompletedProcess[str]:
    variables = {name: str(one).replace("$CI_PROJECT_DIR", str(cwd)) for name, one in made["variables"].items()}
    script = "set -eo pipefail\n" + "\n".join(made["script"])
    environment = {**os.environ, **variables, "CI": "true"}
    return subprocess.run(
        ["bash", "-c", script], cwd=cwd, env=environment, capture_output=True, text=True, timeout=250, check=False
    )


def stand_in(folder: Path) -> None:
    """An environment with the suite of this checkout and what it needs, without asking a registry."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (here,) = Path(sys.prefix).glob("lib/python*/site-packages")
    (site / "here.pth").write_text(f"{here}\n{ROOT}\n")
    for name, module in (("epp-conformance", "conformance.cli"), ("pip", "pip._internal.cli.main")):
        program = folder / "bin" / name
        program.write_text(f"#!{folder}/bin/python\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
        program.chmod(0o755)


def test_the_component_writes_what_merge_requests_show(installed, project):
    stand_in(project / ".epp-conformance")
    made = job(profile="my epp/profile.yaml", arguments=SUBSET, suite="pip")
    done = run_job(made, project)
    assert done.returncode == 1, done.stdout + done.stderr
    for path in made["artifacts"]["reports"].values():
        assert (project / path).is_file()
    (row,) = json.loads((project / "conformance-report" / "codequality.json").read_text())
    assert (row["check_name"], row["severity"]) == ("EPP-SUB-06", "major")
    assert row["location"] == {"path": "my epp/profile.yaml", "lines": {"begin": 8}}


def test_the_component_accepts_an_incomplete_run_if_told(installed, project):
    stand_in(project / ".epp-conformance")
    (project / "my epp" / "profile.yaml").write_text(PROFILE % "")
    given = {"profile": "my epp/profile.yaml", "arguments": SUBSET, "suite": "pip"}
    assert run_job(job(**given), project).returncode == 4
    accepting = job(**given | {"accept-incomplete": "true"})
    assert accepting["script"][1] == job(**given)["script"][1]
    del accepting["script"][:2]  # what installs: the job before has
    assert run_job(accepting, project).returncode == 0
    dead = "start: {}\naddress: 127.0.0.1:9\ndiscovery: {fixed: {endpoints: ['127.0.0.1:18473']}}\n"
    (project / "my epp" / "profile.yaml").write_text(dead)
    assert run_job(accepting, project).returncode == 4


# -- recipes to copy ---------------------------------------------------------------------------------------------------


def test_recipes_use_inputs_that_exist():
    workflow = yaml.safe_load((ROOT / "examples" / "ci" / "github-actions.yaml").read_text())
    (step,) = [step for step in workflow["jobs"]["conformance"]["steps"] if "epp-conformance@" in step.get("uses", "")]
    assert step["with"].keys() <= ACTION["inputs"].keys()
    (included,) = yaml.safe_load((ROOT / "examples" / "ci" / "gitlab-ci.yaml").read_text())["include"]
    assert job(**included["inputs"])["needs"] == ["build"]


def shell(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "examples" / "ci" / "epp-conformance.sh", *arguments],
        cwd=project, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip


def test_the_shell_recipe_ends_with_the_exit_code_of_the_run(installed, project):
    stand_in(project / ".epp-conformance")
    done = shell(project, "--profile", "my epp/profile.yaml", "--scenario", "subset.wrong-port")
    assert done.returncode == 1, done.stdout + done.stderr
    assert (project / "conformance-report" / "junit.xml").is_file()


def test_the_shell_recipe_without_arguments_says_what_to_do(project):
    done = shell(project)
    assert done.returncode == 2
    assert "give --profile FILE, or --epp HOST:PORT" in done.stderr
