"""The profile of a target: one YAML file that says what it is, how to start, reach and feed it, and what it claims.

Every key has a default that suits an EPP on the defaults of the protocol. Strings of `start` may hold placeholders:
`{port}`, `{healthPort}`, `{metricsPort}` (free ports), `{endpointsFile}`, `{kubeconfig}`, `{namespace}`, `{pool}`,
`{binary}`, `{version}` (protocol version), `{workdir}` (a scratch folder of the run), `{python}`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from conformance.episode import Claims
from conformance.scenario.schema import BodyMode
from conformance.strict_yaml import FileModel

Seconds = Annotated[float, Field(gt=0, le=3600)]


class Implementation(FileModel):
    """Who made the target, in the words of upstream's conformance reports."""

    organization: str = ""
    project: str = ""
    url: str = ""
    version: str = ""
    contact: tuple[str, ...] = ()


class Start(FileModel):
    """How the suite starts the target: a command or an image. Neither: it runs already, at `address`."""

    command: tuple[str, ...] | None = Field(None, description="program and arguments, no shell")
    image: str | None = Field(None, description="container image, best by digest")
    args: tuple[str, ...] = Field((), description="further arguments, of the command or of the image")
    env: dict[str, str] = {}
    workdir: str | None = Field(
        None, description="folder in which it is started; for an image it is seen at the same place in the container"
    )
    network: Literal["bridge", "host"] = Field(
        "bridge",
        description="of an image. bridge: its own, so it must listen on all addresses (0.0.0.0); host: this machine's",
    )
    versions: dict[str, Variant] = Field({}, description="what differs by protocol version")

    @model_validator(mode="after")
    def _one_way(self) -> Start:
        if self.command and self.image:
            raise ValueError("give `command` or `image`, not both")
        return self


class Variant(FileModel):
    """What is different when the target is started for one protocol version."""

    command: tuple[str, ...] | None = None
    image: str | None = None
    args: tuple[str, ...] | None = None
    env: dict[str, str] = {}


class Ready(FileModel):
    """When the target is ready. `answer`: a stream gets any legal answer; `health`: a health service is SERVING."""

    rule: Literal["answer", "health"] = "answer"
    service: str = Field("", description="the health service asked, for the rule `health`")
    health_address: str | None = Field(None, description="host:port of the health service, if it is not the target's")


class Tls(FileModel):
    """How the target is spoken to. `unverified` accepts any certificate, as gateways do by default."""

    mode: Literal["plaintext", "unverified", "verified"] = "plaintext"
    ca: str | None = Field(None, description="PEM file that must have signed the target's certificate")
    cert: str | None = Field(None, description="PEM file of our own certificate, for mutual TLS")
    key: str | None = None
    server_name: str | None = Field(None, description="SNI, and the name to verify")

    @model_validator(mode="after")
    def _complete(self) -> Tls:
        if bool(self.cert) != bool(self.key):
            raise ValueError("`cert` and `key` belong together")
        if self.ca and self.mode != "verified":
            raise ValueError("`ca` is only used with `mode: verified`")
        return self


class Connect(FileModel):
    """How streams are opened."""

    authority: str | None = Field(None, description=":authority of the gRPC calls; default: the address")
    metadata: dict[str, str] = Field({}, description="gRPC metadata (headers) of every call")
    connections: int = Field(2, ge=1, le=16)


class File(FileModel):
    """A file that the target watches. `template` is rendered with Jinja2: `endpoints` (list of ip:port), `pods`."""

    path: str = Field("{workdir}/endpoints", description="where the file is written")
    template: str = "{% for endpoint in endpoints %}{{ endpoint }}\n{% endfor %}"
    reread: Seconds = Field(0.25, description="the target reads the file at least this often")


class Fixed(FileModel):
    """Endpoints that the target knows already; fake model servers are bound there."""

    endpoints: tuple[str, ...] = Field(min_length=1)


class Kubernetes(FileModel):
    """The objects that the target looks for in the Kubernetes API."""

    namespace: str = "default"
    pool: str = "pool"
    group: Literal["inference.networking.k8s.io", "inference.networking.x-k8s.io"] = "inference.networking.k8s.io"
    pod_port: int = Field(8000, gt=0, lt=65_536, description="first target port; further ones follow it")
    objectives: dict[str, int] = Field({}, description="InferenceObjectives: name and priority")
    models: tuple[str, ...] = Field((), description="InferenceModels, of old versions")
    objects: tuple[dict[str, Any], ...] = Field((), description="further manifests")


class Discovery(FileModel):
    """How the target learns its pool: exactly one of the three."""

    kubernetes: Kubernetes | None = None
    file: File | None = None
    fixed: Fixed | None = None
    scrapes: bool = Field(True, description="it reads the pods' /metrics")

    @model_validator(mode="after")
    def _one(self) -> Discovery:
        given = [name for name in ("kubernetes", "file", "fixed") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of kubernetes, file, fixed (given: {', '.join(given) or 'none'})")
        return self


class Sheddable(FileModel):
    """How a request is marked as one that may be dropped under load."""

    headers: dict[str, str] = {}
    model: str | None = None


class Requests(FileModel):
    """What the suite's requests look like."""

    model: str = "llama-3"
    unknown_model: str = "no-such-model"
    path: str = "/v1/completions"
    chat_path: str = "/v1/chat/completions"
    headers: dict[str, str] = Field({}, description="sent with every request")
    secret_headers: dict[str, str] = Field({}, description="likewise, and redacted in all that is written")
    body: dict[str, Any] = Field({}, description="further fields of every JSON body")
    sheddable: Sheddable = Sheddable.model_construct()


class Metadata(FileModel):
    """Namespaces, where they are not the protocol's defaults."""

    destination: str = "envoy.lb"
    subset: str = "envoy.lb.subset_hint"


class Limits(FileModel):
    """How much the target may be asked."""

    rate: float | None = Field(None, gt=0, description="requests per second, at most")
    concurrency: int = Field(64, ge=1, le=1000, description="exchanges at a time, at most")
    warm_up: int = Field(0, ge=0, le=100, description="requests sent and not judged, first")


class Timeouts(FileModel):
    """Bounds of every wait, in seconds."""

    start: Seconds = 30
    stop: Seconds = 5
    answer: Seconds = 10
    convergence: Seconds = Field(5, description="a change of the pool must be followed after this")
    scrape: Seconds = Field(2, description="gauges must have been read twice within this")


class Profile(FileModel):
    """A target."""

    role: Literal["epp"] = Field("epp", description="which side of the protocol is tested: an endpoint picker")
    name: str = ""
    implementation: Implementation = Implementation.model_construct()
    start: Start = Start.model_construct()
    address: str = Field("127.0.0.1:{port}", description="where the target listens, host:port")
    ready: Ready = Ready.model_construct()
    tls: Tls = Tls.model_construct()
    connect: Connect = Connect.model_construct()
    discovery: Discovery
    requests: Requests = Requests.model_construct()
    metadata: Metadata = Metadata.model_construct()
    limits: Limits = Limits.model_construct()
    body_modes: tuple[BodyMode, ...] = Field(
        ("full-duplex",), min_length=1, description="request body modes driven; the first is the main one"
    )
    protocol_versions: tuple[str, ...] = Field(("1.0.0",), description="the versions that it claims")
    claims: Claims = Claims()
    timeouts: Timeouts = Timeouts.model_construct()

    @property
    def started_by_us(self) -> bool:
        """True if the suite starts the target, so that it can also restart it and run several."""
        return bool(self.start.command or self.start.image)
