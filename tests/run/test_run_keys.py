"""Every key of profiles and scenarios does something: each is read when scenarios are planned, prepared and run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pydantic import BaseModel

from conformance.planning.data_plane import DataPlaneChoice
from conformance.planning.plan import Selection, make_plan
from conformance.report.document.build import build
from conformance.requirements.catalogue import Catalogue
from conformance.roles import traits_of
from conformance.run.data_plane.replies import upstream_for
from conformance.run.data_plane.stimuli import prepare
from conformance.run.engine import EngineThread
from conformance.run.epp.kubernetes import KubernetesApi
from conformance.run.epp.members import PoolSpec
from conformance.run.epp.target import client_tls
from conformance.run.session import RunSettings, Session
from conformance.scenario import schema
from conformance.scenario.loader import Instance, load
from conformance.scenario.references import NOBODY
from conformance.strict_yaml import FileModel
from conformance.targets import gateway, model_server, profile
from conformance.targets.launch import in_bridge, launch
from conformance.targets.resolve import load_any, shipped
from fake_kubernetes import Emulator

pytestmark = pytest.mark.program

ROOT = Path(__file__).parents[2]

GATEWAY = (
    *("-m", "reference_gateway", "--listen", "127.0.0.1:{port}", "--protocol-version", "{version}"),
    *("--epp", "{epp}", "--endpoints", "{endpoints}", "--epp", "{epp2}", "--endpoints", "{endpoints2}"),
)
GATEWAYS = ("gateway.*",)
SERVER = ("-m", "fake_modelserver", "serve", "--listen", "127.0.0.1:{port}")
SERVERS = ("server.*", "metrics.*", "lora.*")
BY_NAME = {
    ("Scenario", "matrix"): ("conformance/scenario/loader.py", '"matrix"'),
    ("Scenario", "combine"): ("conformance/scenario/loader.py", '"combine"'),
    ("Scenario", "without"): ("conformance/scenario/loader.py", '"without"'),
    ("ScenarioFile", "role"): ("conformance/scenario/loader.py", '"role"'),
    ("ScenarioFile", "section"): ("conformance/scenario/loader.py", "section="),
    ("ScenarioFile", "scenarios"): ("conformance/scenario/loader.py", '"scenarios"'),
    ("Profile", "name"): ("conformance/pytest_plugin/plugin.py", "profile.name"),
    ("GatewayProfile", "name"): ("conformance/pytest_plugin/plugin.py", "profile.name"),
    ("ModelServerProfile", "name"): ("conformance/pytest_plugin/plugin.py", "profile.name"),
    ("KubernetesStep", "fault"): ("conformance/run/epp/execute.py", "step.fault"),
    ("PoolStep", "other_ports"): ("conformance/run/epp/pool.py", "step.other_ports"),
    ("StartWith", "attributes"): ("conformance/run/epp/execute.py", "step.attributes"),
    **{
        (model.__name__, name): ("conformance/run/epp/kubernetes.py", "emulator.store.put(manifest.model_dump(")
        for model in (profile.Manifest, profile.ObjectMeta)
        for name in model.model_fields
    },
}
"""Keys that are read from the file as it is, by the command line, or only with Kubernetes: where, and by what words."""

EPP = (
    "pool.added",
    "pool.no-longer-ready",
    "destination.several-ports",
    "health.*",
    "errors.shed",
    "robustness.unread",
)


def declared(model: type[BaseModel], name: str) -> type[BaseModel]:
    """The class that declares the key."""
    return next(one for one in reversed(model.__mro__) if name in getattr(one, "model_fields", {}))


def keys(*roots: type[BaseModel]) -> set[tuple[str, str]]:
    """Every key of these models and of those in them, by the class that has it."""
    found: dict[type[BaseModel], None] = {}
    todo = list(roots)
    while todo:
        model = todo.pop()
        if model in found:
            continue
        found[model] = None
        for field in model.model_fields.values():
            todo += [one for one in _inside(field.annotation) if issubclass(one, BaseModel)]
    return {(declared(model, name).__name__, name) for model in found for name in model.model_fields}


def _inside(annotation: object) -> Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for one in getattr(annotation, "__args__", ()):
        yield from _inside(one)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """What is read from here on."""
    found: set[tuple[str, str]] = set()
    known: dict[type, dict[str, tuple[str, str]]] = {}

    def names(model: type[BaseModel]) -> dict[str, tuple[str, str]]:
        if model not in known:
            known[model] = {name: (declared(model, name).__name__, name) for name in model.model_fields}
        return known[model]

    def get(self: FileModel, name: str) -> object:
        if name[0] != "_" and (key := names(type(self)).get(name)) is not None:
            found.add(key)
        return object.__getattribute__(self, name)

    def dumped(self: FileModel, **options: object) -> dict[str, object]:
        found.update(names(type(self)).values())
        return original(self, **options)

    original = FileModel.model_dump
    monkeypatch.setattr(FileModel, "__getattribute__", get, raising=False)
    monkeypatch.setattr(FileModel, "model_dump", dumped)
    return found


def test_every_key_is_read(read: set[tuple[str, str]]) -> None:
    catalogue = Catalogue.load()
    instances = load(catalogue)
    profiles = [load_any(name) for name in shipped()]
    reference = next(one for one in profiles if isinstance(one, profile.Profile) and one.name == "reference")
    reference = reference.model_copy(update={"ready": profile.Ready(rule="health", service="liveness")})
    two_pools = gateway.GatewayProfile.model_validate({
        "role": "data-plane",
        "subsetHeader": "x-subset",
        "backends": [{}, {}],
        "start": {"command": ["{python}", *GATEWAY]},
    })  # fmt: skip
    server = model_server.ModelServerProfile.model_validate({
        "role": "model-server",
        "start": {"command": ["{python}", *SERVER]},
        "adapters": ["tuned-a", "tuned-b"],
        "limits": {"concurrency": 16},
    })  # fmt: skip
    wanted = keys(profile.Profile, gateway.GatewayProfile, model_server.ModelServerProfile, schema.ScenarioFile)
    read.clear()  # what checks read when a file is loaded does nothing
    for one in profiles:
        for version in ("0.2.0", "1.0.0", "next"):
            traits = traits_of(one, data_plane=DataPlaneChoice.named("fake"))
            make_plan(instances, catalogue, version, traits, Selection())
    _prepared(instances, reference)
    _started(profiles)
    with EngineThread() as engine:
        engine.call(_published(profiles))
        for target, some in ((reference, EPP), (two_pools, GATEWAYS), (server, SERVERS)):
            version = "1.0.0" if target is two_pools else "next"
            settings = RunSettings(
                profile=target, versions=(version,), selection=Selection(scenarios=some, slow=True), seed=1, jobs=1
            )
            session = Session(settings, engine)
            session.run_all()
            outcome = session.outcome()
            assert outcome.versions[0].results
            build(outcome, catalogue=catalogue, profile=target)
    for path, words in BY_NAME.values():
        assert words in (ROOT / path).read_text()
    unread = sorted(wanted - read - set(BY_NAME))
    assert not unread, "\n".join(map(str, unread))


def _prepared(instances: tuple[Instance, ...], target: profile.Profile) -> None:
    """Prepare every exchange as if there were pods by every name."""
    names = {pod.name for one in instances for pod in one.scenario.pool.pods}
    names |= {pod.name for one in instances for step in one.scenario.steps if step.pool for pod in step.pool.add}
    endpoints = {name: (f"127.0.0.{at}:8000", f"127.0.0.{at}:8001") for at, name in enumerate({*names, NOBODY}, 2)}
    for one in instances:
        for step in one.scenario.steps:
            if step.exchange is not None:
                prepare(
                    step.exchange,
                    index=0,
                    mode="full-duplex",
                    profile=target,
                    endpoints=endpoints,
                    pool=(),
                    rng=Random(1),
                )
                upstream_for(step.exchange.reply, 0, lambda _: True)


def _started(profiles: list[profile.Profile | gateway.GatewayProfile]) -> None:
    """How each endpoint picker would be started and spoken to."""
    values = dict.fromkeys(
        ("binary", "workdir", "endpointsFile", "kubeconfig", "namespace", "pool", "reporterConfig"), "x"
    )
    for one in profiles:
        if isinstance(one, profile.Profile):
            for version in one.protocol_versions:
                launch(one, version, values)
                in_bridge(one, version)
            client_tls(one.tls.model_copy(update={"mode": "verified"}))
    image = profile.Profile.model_validate(
        {"discovery": {"fixed": {"endpoints": ["127.0.0.1:1"]}}, "start": {"image": "i"}}
    )
    in_bridge(image, "1.0.0")
    traits_of(image)


async def _published(profiles: list[profile.Profile | gateway.GatewayProfile]) -> None:
    """The pool in the Kubernetes API."""
    for one in profiles:
        if isinstance(one, profile.Profile) and one.discovery.kubernetes is not None:
            kubernetes = one.discovery.kubernetes
            api = KubernetesApi(Emulator(namespaces=(kubernetes.namespace,)), kubernetes)
            await api.publish((), PoolSpec((kubernetes.pod_port,), "both-labels"))
