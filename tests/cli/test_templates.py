"""Templates of endpoints files: what they may do, and what is refused, at once and with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from conformance.errors import UsageError
from conformance.targets.launch import launch
from conformance.targets.profile import File
from conformance.targets.resolve import load_profile
from conformance.targets.template import FileTemplate

ENDPOINTS = ["10.0.0.1:8000", "10.0.0.2:8000"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (File().template, "10.0.0.1:8000\n10.0.0.2:8000\n"),
        ("{{ endpoints|join(',') }}\n", "10.0.0.1:8000,10.0.0.2:8000\n"),
        ("{{ endpoints|tojson }}", '["10.0.0.1:8000", "10.0.0.2:8000"]'),
        (
            "endpoints:\n{% for one in endpoints %}{% set host, port = one.rsplit(':', 1) %}"
            "- name: epp-{{ loop.index }}\n  address: {{ host }}\n  port: {{ port|int + 0 }}\n{% endfor %}",
            "endpoints:\n- name: epp-1\n  address: 10.0.0.1\n  port: 8000\n"
            "- name: epp-2\n  address: 10.0.0.2\n  port: 8000\n",
        ),
    ],
)
def test_templates_render_endpoints_and_pods(text: str, expected: str) -> None:
    assert FileTemplate(text).render(endpoints=ENDPOINTS, pods=[]) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ endpoints.append('x') }}", "unsafe"),
        ("{{ self.__init__.__globals__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", "unsafe"),
        ("{{ 'x' * 9999999999 }}", "the operator * is not allowed"),
        ("{{ 9 ** 9 ** 9 }}", "the operator ** is not allowed"),
        ("{{ '%99999999999d' % 1 }}", "the operator % is not allowed"),
        ("{{ 'x'.ljust(9999999999) }}", "unsafe"),
        ("{{ '%9999999999d'|format(1) }}", "No filter named 'format'"),
        ("{{ range(10000000000)|list }}", "range has at most 1000 numbers"),
        ("{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{% endfor %}{% endfor %}"
         "{% endfor %}", "still being rendered after 1 s"),
        ("{% for a in range(999) %}{{ range(999)|join('xxxxxxxxx') }}{% endfor %}", "more than 1048576 characters"),
        ("{{ range(999)|join(range(999)|join(range(999)|join('x'))) }}", "a text of more than 65536 characters"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "recursion"),
        ("{{ endpoint }}", "'endpoint' is undefined"),
        ("{% for %}", "Expected"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("x" * 70_000, "more than 65536 characters"),
    ],
)  # fmt: skip
def test_templates_cannot_reach_beyond_their_values(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"discovery\.file\.template") as caught:
        FileTemplate(text).render(endpoints=ENDPOINTS, pods=[])
    assert said in caught.value.message


def test_profile_check_runs_no_code_of_a_template(cli, tmp_path: Path) -> None:
    made = tmp_path / "made"
    template = "{{ cycler.__init__.__globals__.os.system('touch " + str(made) + "') }}"
    (tmp_path / "epp.yaml").write_text(
        f'address: 127.0.0.1:1\ndiscovery: {{file: {{path: {tmp_path}/endpoints, template: "{template}"}}}}\n'
    )
    ran = cli("profile", "check", tmp_path / "epp.yaml")
    assert ran.code == 2
    assert "discovery.file.template: access to attribute '__init__'" in ran.err
    assert not made.exists()


@pytest.mark.parametrize("endpoints", [[], ENDPOINTS, ["[::1]:8000", *ENDPOINTS]])
def test_the_router_of_llm_d_is_given_a_file_in_its_format(endpoints: list[str]) -> None:
    file = load_profile("llm-d-router-file").discovery.file
    assert file is not None
    data = yaml.safe_load(FileTemplate(file.template).render(endpoints=endpoints, pods=[]))
    assert [f"{one['address']}:{one['port']}" for one in data["endpoints"]] == (ENDPOINTS if endpoints else [])
    assert len({one["name"] for one in data["endpoints"]}) == len(data["endpoints"])


def test_the_configuration_of_llm_ds_router_names_the_file() -> None:
    started = launch(load_profile("llm-d-router-file"), "1.0.0", {"binary": "./epp", "endpointsFile": "/e.yaml"})
    configuration = yaml.safe_load(started.command[-1])
    assert configuration["plugins"][0]["parameters"]["path"] == "/e.yaml"
