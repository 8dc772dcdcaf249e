"""From `--epp`, `--profile` and overriding flags to a profile."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conformance.errors import UnknownNameError, UsageError
from conformance.requirements.schema import VERSIONS
from conformance.strict_yaml import FileError
from conformance.targets.gateway import GatewayProfile
from conformance.targets.launch import launch
from conformance.targets.model_server import ModelServerProfile
from conformance.targets.profile import Profile
from conformance.targets.resolve import (
    Overrides,
    json_schema,
    load_any,
    load_profile,
    protocol_versions,
    resolve,
    shipped,
)
from conformance.targets.resolve_model_server import resolve_model_server
from ext_proc.http2.tls import self_signed


def test_the_default_is_the_reference_epp() -> None:
    found = resolve()
    assert found == resolve("reference")
    assert found.profile.name == "reference"
    assert found.profile.started_by_us
    assert found.profile.discovery.file is not None


@pytest.mark.parametrize("name", list(shipped()))
def test_shipped_profiles_can_be_launched_in_every_version_they_claim(name: str) -> None:
    profile = load_any(name)
    assert profile.name == name
    if isinstance(profile, GatewayProfile):
        assert profile.started_by_us
        return
    values = {"endpointsFile": "/e", "kubeconfig": "/k", "namespace": "default", "pool": "pool", "binary": "./epp"}
    values["reporterConfig"] = "/r"
    for version in profile.protocol_versions:
        started = launch(profile, version, values)
        assert started.command
        assert not any("{" in word for word in started.command[:8])
        if profile.discovery.kubernetes is not None:
            assert started.env["KUBECONFIG"] == "/k"


def test_releases_of_one_epp_differ_only_where_their_flags_do() -> None:
    old, new = load_profile("gie-epp-1.0").start.command, load_profile("gie-epp-1.5").start.command
    assert old is not None
    assert new is not None
    config = "--config-file={reporterConfig}"
    assert set(new) - set(old) == {"--metrics-endpoint-auth=false", "--tracing=false", config}
    told = yaml.safe_load(old[old.index("--config-text") + 1])
    assert told == load_profile("gie-epp-1.5").reporter_config
    assert len(set(old) - set(new)) == 2  # the option and its text


def test_the_example_profile_starts_the_program_beside_it() -> None:
    path = Path(__file__).parents[2] / "examples" / "go-epp" / "profile.yaml"
    profile = load_profile(str(path))
    assert profile.start.workdir == str(path.parent)
    shipped_one = load_profile("go-epp")
    same = {"name", "discovery", "requests", "claims", "body_modes", "protocol_versions", "tls"}
    assert profile.model_dump(include=same) == shipped_one.model_dump(include=same)


def test_the_reference_epp_is_told_its_models_in_every_version() -> None:
    profile = load_profile("reference")
    for version in profile.protocol_versions:
        assert "--model=llama-3" in launch(profile, version, {"endpointsFile": "/e", "reporterConfig": "/r"}).command


def test_paths_in_a_profile_are_beside_its_file(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    self_signed(tmp_path).certificate.rename(tmp_path / "ca.pem")
    path = tmp_path / "p.yaml"
    path.write_text(
        "start: {command: [./epp], workdir: bin}\ntls: {mode: verified, ca: ca.pem}\ndiscovery: {file: {}}\n"
    )
    profile = load_profile(str(path))
    assert profile.start.workdir == str(tmp_path / "bin")
    assert profile.tls.ca == str(tmp_path / "ca.pem")


# -- addresses, commands, images ---------------------------------------------------------------------------------------


def test_an_address_with_endpoints_that_it_knows() -> None:
    found = resolve("127.0.0.1:9002", None, Overrides(endpoints=("127.0.0.1:8000, [::1]:8001",)))
    assert found.profile.address == "127.0.0.1:9002"
    assert not found.profile.started_by_us
    assert found.profile.discovery.fixed is not None
    assert found.profile.discovery.fixed.endpoints == ("127.0.0.1:8000", "[::1]:8001")


def test_an_address_with_a_file(tmp_path: Path) -> None:
    found = resolve("localhost:9002", None, Overrides(endpoints_file=tmp_path / "endpoints"))
    assert found.profile.discovery.file is not None
    assert found.profile.discovery.file.path == str(tmp_path / "endpoints")


def test_an_address_alone_says_what_is_missing() -> None:
    with pytest.raises(UsageError, match="learns its pool") as caught:
        resolve("localhost:9002")
    for flag in ("--endpoints", "--endpoints-file", "--profile"):
        assert flag in caught.value.hint


def test_an_address_takes_the_rest_from_the_profile() -> None:
    found = resolve("localhost:9002", "gie-epp-1.5")
    assert not found.profile.started_by_us
    assert found.profile.discovery.kubernetes is not None
    assert found.profile.tls.mode == "unverified"


def test_a_commands_placeholders_say_how_it_learns_its_pool() -> None:
    assert resolve("cmd:./e --f {endpointsFile}").profile.discovery.file is not None
    found = resolve("cmd:./e --pool {pool}").profile
    assert found.discovery.kubernetes is not None
    assert found.start.env == {"KUBECONFIG": "{kubeconfig}"}
    with pytest.raises(UsageError, match="learns its pool"):
        resolve("cmd:./e")


def test_a_command_replaces_that_of_the_profile() -> None:
    found = resolve("cmd:./other {kubeconfig}", "gie-epp-1.0").profile
    assert found.start.command == ("./other", "{kubeconfig}")
    assert found.start.env == {"KUBECONFIG": "{kubeconfig}"}
    assert found.claims.sheds


def test_an_image(tmp_path: Path) -> None:
    found = resolve("image:registry/epp@sha256:1", None, Overrides(endpoints_file=tmp_path / "e")).profile
    assert found.start.image == "registry/epp@sha256:1"
    assert found.start.command is None


def test_an_image_alone_is_told_that_it_needs_a_profile() -> None:
    with pytest.raises(UsageError, match="learns its pool") as caught:
        resolve("image:registry/epp")
    assert caught.value.hint.startswith("give --profile FILE with `start.image`")
    assert "127.0.0.1" not in caught.value.hint  # a container in a separate network reaches no such pod


@pytest.mark.parametrize(("start", "kept"), [("image: epp:1", ("--port={port}",)), ("command: [./epp]", ())])
def test_another_image_runs_with_the_arguments_of_the_profiles_image(
    tmp_path: Path, start: str, kept: tuple[str, ...]
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(f"start:\n  {start}\n  args: ['--port={{port}}']\n  network: host\ndiscovery: {{file: {{}}}}\n")
    found = resolve("image:epp:2", str(path)).profile
    assert (found.start.image, found.start.args, found.start.network) == ("epp:2", kept, "host")


@pytest.mark.parametrize(("start", "kept"), [({"image": "s:1"}, ("--port={port}",)), ({"command": ["./s"]}, ())])
def test_another_image_of_a_model_server_runs_with_the_arguments_of_the_profile(
    start: dict[str, Any], kept: tuple[str, ...]
) -> None:
    given = {"role": "model-server", "start": {**start, "args": ["--port={port}"]}}
    found = resolve_model_server("image:s:2", ModelServerProfile.model_validate(given), Overrides()).profile
    assert (found.start.image, found.start.args) == ("s:2", kept)


@pytest.mark.parametrize("text", ["cmd:", "cmd: ", "cmd:'unfinished", "image:", "image: "])
def test_empty_targets_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        resolve(text, None, Overrides(endpoints=("127.0.0.1:1",)))


@pytest.mark.parametrize("text", ["host:99999", "host:0"])
def test_an_invalid_port_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="there is no port"):
        resolve(text)


@pytest.mark.parametrize("text", ["py:mod:factory", "host", ":9002", "a b:80", "[::1]", "cmdx:y"])
def test_unknown_kinds_of_target_are_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(UsageError, match="no kind of target") as caught:
        resolve(text)
    for kind in ("HOST:PORT", "cmd:", "image:", "reference"):
        assert kind in caught.value.hint


def test_the_reference_epp_has_its_own_profile() -> None:
    with pytest.raises(UsageError, match="its own profile"):
        resolve("reference", "gie-epp-1.0")


# -- overrides ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["a:8000", "127.0.0.1", "127.0.0.1:0", "::1:80", "http://127.0.0.1:80", "", "127.0.0.1:1,127.0.0.1:1"]
)
def test_wrong_endpoints(text: str) -> None:
    with pytest.raises(UsageError, match="--endpoints"):
        resolve("h:1", None, Overrides(endpoints=(text,)))


def test_endpoints_and_file_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exclude"):
        resolve("h:1", None, Overrides(endpoints=("127.0.0.1:1",), endpoints_file=tmp_path / "e"))


def test_the_endpoints_file_must_be_possible(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        resolve("h:1", None, Overrides(endpoints_file=tmp_path))
    with pytest.raises(UsageError, match="does not exist"):
        resolve("h:1", None, Overrides(endpoints_file=tmp_path / "none" / "e"))


def test_body_modes() -> None:
    found = resolve(overrides=Overrides(body_modes=("streamed", "buffered", "streamed")))
    assert found.profile.body_modes == ("streamed", "buffered")
    with pytest.raises(UnknownNameError, match="body mode"):
        resolve(overrides=Overrides(body_modes=("full",)))


def test_tls(tmp_path: Path) -> None:
    ca = Path(self_signed(tmp_path).certificate)
    assert resolve(overrides=Overrides(tls="unverified")).profile.tls.mode == "unverified"
    found = resolve(overrides=Overrides(ca=ca)).profile.tls
    assert (found.mode, found.ca) == ("verified", str(ca))
    for wrong in (Overrides(tls="on"), Overrides(tls="unverified", ca=ca), Overrides(ca=tmp_path / "none")):
        with pytest.raises(UsageError):
            resolve(overrides=wrong)


def test_the_binary_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(profile="go-epp", overrides=Overrides(binary="./epp")).values == {"binary": str(tmp_path / "epp")}
    assert resolve(profile="go-epp", overrides=Overrides(binary="epp")).values == {"binary": "epp"}  # on PATH


# -- profiles ----------------------------------------------------------------------------------------------------------


def test_an_unknown_profile_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'gie-epp-1\.5'") as caught:
        resolve(profile="gie-epp-1.50")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "discovery: {file: {}}\nclaims: {shed: true}\n",
            r"2:10: claims.shed: unknown key 'shed' .did you mean 'sheds'",
        ),
        ("discovery: {}\n", r"1:12: discovery: give exactly one of kubernetes, file, fixed"),
        ("discovery: {file: {}}\ntimeouts: {answer: 0}\n", r"2:20: timeouts.answer"),
        ("discovery: {file: {}}\nstart: {command: ./epp}\n", r"2:18: start.command"),
        ("discovery: {file: {}}\nstart: {command: []}\n", r"2:18: start.command: expected at least 1 item"),
        ("discovery: {file: {}}\nrequests: {path: v1}\n", r"2:18: requests.path"),
        ("discovery: {file: {}}\nmetadata: {destination: ''}\n", r"2:25: metadata.destination"),
        ("discovery: {file: {}, file: {}}\n", r"1:23: .*twice"),
        ("- a\n", r"1:1: "),
        ("role: []\n", r"1:7: role: \[\] is no role"),
        ("role: {}\n", r"1:7: role: \{\} is no role"),
        (
            "discovery: {file: {}}\nstart: {command: [./epp], workdir: bin}\n",
            r"2:36: start.workdir: there is no",
        ),
        ("discovery: {file: {}}\ntls: {mode: verified, ca: ca.pem}\n", r"2:27: tls.ca: there is no file"),
        ("discovery: {file: {}}\ntls: {mode: verified, ca: p.yaml}\n", r"2:27: tls.ca: .*no certificate in PEM form"),
        ("discovery: {file: {}}\ntls: {mode: verified, ca: .}\n", r"2:27: tls.ca: .* is a folder, not a file"),
        ("discovery: {file: {}}\naddress: nowhere\n", r"2:10: address: 'nowhere' is no address"),
        ("discovery: {file: {path: no/where.txt}}\n", r"1:26: discovery.file.path: there is no folder no"),
        (
            "discovery: {kubernetes: {pool: ''}}\n",
            r"1:32: discovery.kubernetes.pool: String should have at least 1 character",
        ),
        ("discovery: {fixed: {endpoints: ['localhost:8000']}}\n", r"1:32: .*'localhost' is no IP address"),
        ("discovery: {fixed: {endpoints: [epp]}}\n", r"1:32: .*endpoints: 'epp' is no endpoint: there is no port"),
        ("discovery: {fixed: {endpoints: ['127.0.0.1:99999']}}\n", r"1:32: .*'99999' is no port from 1 to 65535"),
        ("discovery: {fixed: {endpoints: ['[::1]:80', '[0::1]:80']}}\n", r"1:32: .*\[0::1\]:80 is there twice"),
        (f"discovery: {{file: {{}}}}\nstart: {{workdir: {'a' * 3000}}}\n", r"2:18: start.workdir: .*as long as this"),
        (f"discovery: {{file: {{}}}}\nstart: {{workdir: {'a/' * 3000}}}\n", r"2:18: start.workdir: .*as long as this"),
        (f"discovery: {{file: {{path: /tmp/{'a' * 3000}/e}}}}\n", r"1:26: discovery.file.path: .*as long as this"),
        (
            f"discovery: {{file: {{}}}}\ntls: {{mode: verified, ca: {'a' * 3000}}}\n",
            r"2:27: tls.ca: .*as long as this",
        ),
        ('discovery: {file: {path: "{workdir}/a\\0b"}}\n', r"1:26: discovery.file.path: .*NUL.*: leave it out"),
        ('discovery: {file: {}}\nstart: {workdir: "a\\0b"}\n', r"2:18: start.workdir: .*NUL.*: leave it out"),
        ('discovery: {file: {}}\nstart: {command: [epp, "a\\0b"]}\n', r"2:24: start.command\[1\]: .*NUL.*: leave"),
        ('discovery: {file: {}}\nstart: {env: {A: "a\\0b"}}\n', r"2:18: start.env.A: .*NUL.*: leave it out"),
        (
            "discovery: {kubernetes: {objects: [{apiVersion: v1, kind: Pod, metadata: pod}]}}\n",
            r"1:74: discovery.kubernetes.objects\[0\].metadata: expected a mapping, got 'pod'",
        ),
        (
            "discovery: {kubernetes: {objects: [{apiVersion: v1, kind: [Pod], metadata: {name: a}}]}}\n",
            r"1:59: discovery.kubernetes.objects\[0\].kind: expected text, got a list",
        ),
        (
            "discovery: {kubernetes: {objects: [{apiVersion: v1, kind: Pod, metadata: {labels: {}}}]}}\n",
            r"1:74: .*metadata.name: required key 'name' is missing",
        ),
    ],
)
def test_a_wrong_profile_is_explained_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(FileError, match=expected):
        load_profile(str(path))


def test_a_profile_that_says_not_where_the_target_is(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("discovery: {file: {}}\n")
    with pytest.raises(UsageError, match="neither how the target is started nor where"):
        resolve(profile=str(path))


def test_the_schema_accepts_every_shipped_profile() -> None:
    validators = {role: jsonschema.Draft202012Validator(json_schema(role)) for role in ("epp", "data-plane")}
    for item in shipped().values():
        data = yaml.safe_load(item.read_text())
        validators[data.get("role", "epp")].validate(data)


@pytest.mark.parametrize("role", ["epp", "data-plane", "model-server"])
def test_the_schema_describes_every_key(role: str) -> None:
    schema = json_schema(role)
    described = {
        (name, key): "description" in one
        for name, model in {"Profile": schema, **schema["$defs"]}.items()
        for key, one in model.get("properties", {}).items()
    }
    assert [place for place, found in described.items() if not found] == []


@pytest.mark.program
def test_no_source_is_parsed_where_a_profile_is_read() -> None:
    """Two threads that do so at a time break Python 3.11."""
    text = "import ast; ast.parse = None\nfrom conformance.targets.resolve import load_any\nload_any('reference')"
    assert subprocess.run([sys.executable, "-c", text], timeout=60, check=False).returncode == 0


# -- versions ----------------------------------------------------------------------------------------------------------


def _profile(**data: object) -> Profile:
    return Profile.model_validate({"discovery": {"file": {}}, **data})


def test_versions() -> None:
    assert protocol_versions(_profile()) == ("1.0.0",)
    assert protocol_versions(_profile(protocolVersions=("0.3.0", "0.4.0"))) == ("0.4.0",)
    assert protocol_versions(_profile(protocolVersions=("0.3.0", "1.0.0", "next"))) == ("1.0.0",)
    assert protocol_versions(_profile(), ("next", "0.2.0")) == ("0.2.0", "next")
    assert protocol_versions(_profile(), ("all",)) == VERSIONS
    variants = _profile(start={"command": ("x",), "versions": {"0.4.0": {}}})
    assert protocol_versions(variants, ("all",)) == ("0.4.0", "1.0.0")
    with pytest.raises(UnknownNameError, match=r"did you mean '1\.0\.0'"):
        protocol_versions(_profile(), ("1.0",))


def test_profiles_that_allow_several_targets_at_a_time() -> None:
    assert load_profile("reference").only_one_at_a_time is None
    assert load_profile("gie-epp-1.5").only_one_at_a_time is None
    for one, why in (
        (_profile(address="h:1"), "runs already"),
        (_profile(start={"command": ("x",)}, discovery={"fixed": {"endpoints": ("127.0.0.1:1",)}}), "bound only once"),
        (_profile(start={"command": ("x",)}, discovery={"file": {"path": "/tmp/e"}}), "/tmp/e"),
        (_profile(start={"command": ("x",)}, address="127.0.0.1:9002"), "9002"),
    ):
        reason = one.only_one_at_a_time
        assert reason is not None
        assert why in reason


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_gives_a_target_or_a_suite_error(epp: str, endpoints: str) -> None:
    with contextlib.suppress(UsageError):
        assert resolve(epp, None, Overrides(endpoints=(endpoints,) if endpoints else ())).profile.discovery
