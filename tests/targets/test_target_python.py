"""`--epp python:MODULE:FUNCTION`: functions and coroutines that serve, and a sentence for each that does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.cli import call

pytestmark = pytest.mark.program

MODULE = """\
from reference_epp.server import Parts, serve as run
from reference_epp.settings import parse

print("what a module prints as it is imported does no harm")


async def _run(listen, endpoints_file):
    words = [f"--listen={listen}", f"--endpoints-file={endpoints_file}", "--log-level=error"]
    await run(parse(words), Parts())


async def coroutine(port, endpoints_file, *, patience=1.0):
    assert isinstance(port, int)
    await _run(f"127.0.0.1:{port}", endpoints_file)


def function(address, endpoints_file, **further):
    import asyncio

    asyncio.run(_run(address, endpoints_file))


class Served:
    @staticmethod
    async def on_a_socket(socket, endpoints_file):
        await _run(f"unix:{socket}", endpoints_file)


def returns(port, endpoints_file):
    pass


def crashes(port, endpoints_file):
    raise RuntimeError("there is no license")


def wishes(port, wish):
    pass


def by_position(port, /):
    pass


def nowhere(endpoints_file):
    pass


def no_pool(port):
    pass


VALUE = 3
"""


@pytest.fixture
def suite(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, dict]]:
    """`run --epp python:…` in a folder with the module `my_epp`: its exit code, what it printed, and the report."""
    (tmp_path / "my_epp.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import no_such_library\n")
    (tmp_path / "leaves.py").write_text("import os\nos._exit(3)\n")
    (tmp_path / "raises.py").write_text("raise SystemExit('not today')\n")
    monkeypatch.chdir(tmp_path)

    def conduct(name: str, *arguments: str) -> tuple[int, str, dict]:
        capfd.readouterr()
        code = call(["run", "-q", "-k", "destination.completion", "--epp", f"python:{name}", "-o", "r", *arguments])
        printed = capfd.readouterr()
        file = tmp_path / "r/report.json"
        return code, printed.out + printed.err, json.loads(file.read_text()) if file.exists() else {}

    return conduct


@pytest.mark.parametrize("name", ["my_epp:coroutine", "my_epp:function", "my_epp:Served.on_a_socket"])
def test_a_served_function_is_tested(suite, name: str) -> None:
    _, printed, report = suite(name)
    assert {row["verdict"] for row in report["results"]} == {"pass"}, printed
    assert report["implementation"]["project"] == "my_epp"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("my_epp:returns", "my_epp:returns returned: it must serve until the process is ended"),
        ("my_epp:crashes", "with 'RuntimeError: there is no license'"),
    ],
)
def test_a_function_that_ends_is_a_target_that_ended(suite, name: str, text: str) -> None:
    code, printed, _ = suite(name)
    assert code == 4
    assert text in printed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("my_epp", "does not name a function as MODULE:FUNCTION"),
        ("my_epp:", "does not name a function as MODULE:FUNCTION"),
        ("./my_epp.py:serve", "does not name a function as MODULE:FUNCTION"),
        ("no_module:serve", "there is no module no_module"),
        ("my_epp.inner:serve", "there is no module my_epp.inner"),
        ("broken:serve", "install no_such_library beside the suite"),
        ("leaves:serve", "ended the process: it exited with 3"),
        ("raises:serve", "SystemExit: not today"),
        ("my_epp:serve", "it has coroutine, function, Served"),
        ("my_epp:VALUE", "it is not a function but int"),
        ("my_epp:wishes", "nothing fills its parameter 'wish'"),
        ("my_epp:by_position", "nothing fills its parameter 'port'"),
        ("my_epp:nowhere", "it does not ask where to listen"),
        ("my_epp:no_pool", "a parameter `endpoints_file` or `kubeconfig`"),
    ],
)
def test_an_object_that_is_not_callable_is_refused_before_the_run(suite, name: str, text: str) -> None:
    code, printed, report = suite(name)
    assert code == 2
    assert text in printed
    assert "hint:" in printed
    assert not report


def test_a_function_that_knows_its_endpoints(suite) -> None:
    code, printed, _ = suite("my_epp:coroutine", "--endpoints", "127.0.0.1:8001")
    assert code == 2
    assert "nothing fills {endpointsFile}" in printed
