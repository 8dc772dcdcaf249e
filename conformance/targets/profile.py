"""The profile of a target: one YAML file that says what it is, how to start, reach and feed it, and what it claims.

Every key has a default that suits an EPP on the defaults of the protocol. Strings of `start` may hold placeholders:
`{port}`, `{healthPort}`, `{metricsPort}` (free ports), `{socket}` (path of a Unix socket to make), `{endpointsFile}`,
`{reporterConfig}` (an EndpointPickerConfig with what the suite has reported), `{kubeconfig}`, `{namespace}`, `{pool}`,
`{binary}`, `{version}` (protocol version), `{workdir}` (a scratch folder of the run), `{python}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from conformance.evidence.episode import Claims
from conformance.reading.endpoints import distinct
from conformance.requirements.schema import Version
from conformance.scenario.header_fields import HeaderMap
from conformance.scenario.schema import BodyMode
from conformance.strict_yaml import FileModel
from conformance.targets.authority import no_authority
from conformance.targets.paths import no_file, no_folder
from ext_proc.http2.address import UNIX, socket_path, what_is_no_socket
from ext_proc.http2.errors import BadAddress
from ext_proc.protocol import DESTINATION_NAMESPACE, SUBSET_NAMESPACE

OF_EACH_START = ("{port}", "{socket}")
"""Placeholders of an address that is new with each start."""

Misplaced: TypeAlias = tuple[tuple[str, ...], str, str]
"""A key of a profile by its path, what is wrong with its value, and what to do."""

CONFIG_VERSION = "config.apix.gateway-api-inference-extension.sigs.k8s.io/v1alpha1"
"""The API version of an EndpointPickerConfig."""

Seconds = Annotated[float, Field(gt=0, le=3600)]


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it has a NUL character, where the operating system takes text to end: leave it out")
    return text


SystemText = Annotated[str, AfterValidator(_without_nul)]
"""What the operating system is given: a path, a word of a command, a variable of the environment."""
_PATH = r"^/[!-~]*$"
"""Of a request: as it is sent, so without blanks."""


class Implementation(FileModel):
    """Who made the target, in the words of upstream's conformance reports."""

    organization: str = Field("", description="the organization behind it")
    project: str = Field("", description="what it is called; default: the name of the program or image")
    url: str = Field("", description="where it is found")
    version: str = Field("", description="its version")
    contact: tuple[str, ...] = Field((), description="whom to ask about its reports")


class Start(FileModel):
    """How the suite starts the target: a command or an image. Neither: it runs already, at `address`."""

    command: tuple[SystemText, ...] | None = Field(None, min_length=1, description="program and arguments, no shell")
    image: str | None = Field(None, description="container image, best by digest")
    args: tuple[SystemText, ...] = Field((), description="further arguments, of the command or of the image")
    env: dict[SystemText, SystemText] = Field({}, description="environment variables, added to the suite's own")
    workdir: SystemText | None = Field(
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

    command: tuple[SystemText, ...] | None = Field(None, min_length=1, description="another command")
    image: str | None = Field(None, description="another image")
    args: tuple[SystemText, ...] | None = Field(None, description="other further arguments")
    env: dict[SystemText, SystemText] = Field({}, description="further environment variables")


class Ready(FileModel):
    """When the target is ready. `answer`: a stream gets any legal answer; `health`: a health service is SERVING."""

    rule: Literal["answer", "health"] = Field("answer", description="what makes it ready")
    service: str = Field("", description="the health service asked, for the rule `health`")
    health_address: str | None = Field(None, description="where the health service listens, if it is not the target's")


class Tls(FileModel):
    """How the target is spoken to. `unverified` accepts any certificate, as gateways do by default."""

    mode: Literal["plaintext", "unverified", "verified"] = Field(
        "plaintext", description="no TLS, TLS with any certificate, or with one that is verified"
    )
    ca: SystemText | None = Field(None, description="PEM file that must have signed the target's certificate")
    cert: SystemText | None = Field(None, description="PEM file of our own certificate, for mutual TLS")
    key: SystemText | None = Field(None, description="PEM file of its private key")
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
    metadata: HeaderMap = Field({}, description="gRPC metadata (headers) of every call")
    connections: int = Field(2, ge=1, le=16, description="how many connections streams are spread over")


class File(FileModel):
    """A file that the target watches. `template` is rendered with Jinja2: `endpoints` (list of ip:port), `pods`."""

    path: SystemText = Field(
        "{workdir}/endpoints", description="where the file is written; `{workdir}` is here a folder of the suite's own"
    )
    template: str = Field(
        "{% for endpoint in endpoints %}{{ endpoint }}\n{% endfor %}", description="the content of the file"
    )
    reread: Seconds = Field(0.25, description="the target reads the file at least this often")


class Fixed(FileModel):
    """Endpoints that the target knows already; fake model servers are bound there."""

    endpoints: tuple[str, ...] = Field(min_length=1, description="the endpoints, as ip:port")

    @field_validator("endpoints")
    @classmethod
    def _canonical(cls, endpoints: tuple[str, ...]) -> tuple[str, ...]:
        return distinct(endpoints)


class ObjectMeta(FileModel):
    """What every Kubernetes object says of itself."""

    model_config = ConfigDict(extra="allow")
    name: str = Field(min_length=1, description="its name")
    namespace: str = Field("default", min_length=1, description="its namespace")
    labels: dict[str, str] | None = Field(None, description="its labels")
    annotations: dict[str, str] | None = Field(None, description="its annotations")


class Manifest(FileModel):
    """A Kubernetes object, as it is written for `kubectl`. It is served as it is."""

    model_config = ConfigDict(extra="allow")
    api_version: str = Field(min_length=1, description="group and version of its kind")
    kind: str = Field(min_length=1, description="its kind")
    metadata: ObjectMeta = Field(description="what it says of itself")


class Kubernetes(FileModel):
    """The objects that the target looks for in the Kubernetes API."""

    namespace: str = Field("default", min_length=1, description="the namespace of the pool and its pods")
    pool: str = Field("pool", min_length=1, description="the name of the InferencePool")
    group: Literal["inference.networking.k8s.io", "inference.networking.x-k8s.io"] = Field(
        "inference.networking.k8s.io", description="the API group of the InferencePool"
    )
    pod_port: int = Field(8000, gt=0, lt=65_536, description="first target port; further ones follow it")
    objectives: dict[str, int] = Field({}, description="InferenceObjectives: name and priority")
    models: tuple[str, ...] = Field((), description="InferenceModels, of old versions")
    objects: tuple[Manifest, ...] = Field((), description="further manifests")


class Discovery(FileModel):
    """How the target learns its pool: exactly one of the three."""

    kubernetes: Kubernetes | None = Field(None, description="it watches the Kubernetes API")
    file: File | None = Field(None, description="it watches a file")
    fixed: Fixed | None = Field(None, description="it knows its endpoints")
    scrapes: bool = Field(True, description="it reads the pods' /metrics")

    @model_validator(mode="after")
    def _one(self) -> Discovery:
        given = [name for name in ("kubernetes", "file", "fixed") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of kubernetes, file, fixed (given: {', '.join(given) or 'none'})")
        return self


class Sheddable(FileModel):
    """How a request is marked as one that may be dropped under load."""

    headers: HeaderMap = Field({}, description="headers that mark it")
    model: str | None = Field(None, description="the model that marks it")


class ApiRequests(FileModel):
    """What the suite's requests look like."""

    model: str = Field("llama-3", description="a model that the target serves")
    unknown_model: str = Field("no-such-model", description="a model that it does not serve")
    headers: HeaderMap = Field({}, description="sent with every request")
    secret_headers: HeaderMap = Field({}, description="likewise, and redacted in all that is written")
    body: dict[str, Any] = Field({}, description="further fields of every JSON body")


class Requests(ApiRequests):
    """What the suite's requests to an EPP or a gateway look like."""

    path: str = Field("/v1/completions", pattern=_PATH, description="where requests go")
    chat_path: str = Field("/v1/chat/completions", pattern=_PATH, description="where chat requests go")
    sheddable: Sheddable = Field(
        Sheddable.model_construct(), description="how a request is marked as one that may be dropped under load"
    )


class Metadata(FileModel):
    """Namespaces, where they are not the protocol's defaults."""

    destination: str = Field(DESTINATION_NAMESPACE, min_length=1, description="where the target puts the destination")
    subset: str = Field(SUBSET_NAMESPACE, min_length=1, description="where it looks for the subset hint")


class Limits(FileModel):
    """How much the target may be asked."""

    rate: float | None = Field(None, gt=0, description="requests per second, at most")
    concurrency: int = Field(100, ge=1, le=1000, description="exchanges at a time, at most")
    warm_up: int = Field(0, ge=0, le=100, description="requests sent and not judged, first")


class Timeouts(FileModel):
    """Bounds of every wait, in seconds."""

    start: Seconds = Field(30, description="the target must be ready after this")
    stop: Seconds = Field(5, description="it must have ended this long after SIGTERM")
    answer: Seconds = Field(10, description="it must answer a message within this")
    convergence: Seconds = Field(5, description="a change of the pool must be followed after this")
    scrape: Seconds = Field(2, description="gauges must have been read twice within this")


class Profile(FileModel):
    """A target."""

    role: Literal["epp"] = Field("epp", description="which side of the protocol is tested: an endpoint picker")
    name: str = Field("", description="what the profile is called")
    implementation: Implementation = Field(Implementation.model_construct(), description="who made the target")
    start: Start = Field(Start.model_construct(), description="how it is started")
    address: str = Field("127.0.0.1:{port}", description="where the target listens, host:port or unix:/path")
    ready: Ready = Field(Ready.model_construct(), description="when it is ready")
    tls: Tls = Field(Tls.model_construct(), description="how it is spoken to")
    connect: Connect = Field(Connect.model_construct(), description="how streams are opened")
    discovery: Discovery = Field(description="how it learns its pool")
    requests: Requests = Field(Requests.model_construct(), description="what the suite's requests look like")
    metadata: Metadata = Field(Metadata.model_construct(), description="namespaces, if not the protocol's")
    reporter_config: dict[str, Any] = Field(
        {"apiVersion": CONFIG_VERSION, "kind": "EndpointPickerConfig"},
        description="the EndpointPickerConfig to which the suite adds its reporters, for `{reporterConfig}`",
    )
    limits: Limits = Field(Limits.model_construct(), description="how much it may be asked")
    body_modes: tuple[BodyMode, ...] = Field(
        ("full-duplex",), min_length=1, description="request body modes driven; the first is the main one"
    )
    protocol_versions: tuple[Version, ...] = Field(("1.0.0",), min_length=1, description="the versions that it claims")
    claims: Claims = Field(Claims(), description="what its vendor says of it, as far as a rule depends on it")
    timeouts: Timeouts = Field(Timeouts.model_construct(), description="bounds of every wait")

    @property
    def started_by_us(self) -> bool:
        """True if the suite starts the target, so that it can also restart it and run several."""
        return bool(self.start.command or self.start.image)

    @property
    def configurable(self) -> bool:
        """True if the suite can start copies of it beside each other, each with its own reporters."""
        own = any(each in self.address for each in OF_EACH_START)
        return self.started_by_us and own and "{reporterConfig}" in self.start.model_dump_json()

    @property
    def only_one_at_a_time(self) -> str | None:
        """Why two runs of this target can't stand side by side on one machine; None if they can."""
        if not self.started_by_us:
            return "the target runs already and is shared, so that only one process may change its pool"
        if self.discovery.fixed is not None:
            return "its endpoints are fixed, and each can be bound only once"
        if self.discovery.file is not None and "{workdir}" not in self.discovery.file.path:
            return f"its endpoints file {self.discovery.file.path} is one for all"
        if not any(each in self.address for each in (*OF_EACH_START, "{workdir}")):
            return f"its address {self.address} is one for all"
        return None

    @property
    def started_for(self) -> tuple[str, ...]:
        """The protocol versions for which it can be started; empty: for any."""
        return (*self.start.versions, *self.protocol_versions) if self.start.versions else ()

    def beside(self, folder: Path) -> Profile:
        """The profile with its relative paths read from the folder of its file."""
        tls = self.tls.model_copy(update={name: _placed(getattr(self.tls, name), folder) for name in _TLS_FILES})
        start = self.start.model_copy(update={"workdir": _placed(self.start.workdir, folder)})
        return self.model_copy(update={"tls": tls, "start": start, "address": _socket_beside(self.address, folder)})

    def out_of_place(self) -> Iterator[Misplaced]:
        """What it names that can't be there: files, folders, an address. Its paths are absolute by now."""
        for name in _TLS_FILES:
            path = getattr(self.tls, name)
            if path is not None and (missing := no_file(path)):
                yield ("tls", name), missing, ""
            elif name == "ca" and path is not None and (wrong := no_authority(path)):
                yield ("tls", name), wrong, ""
        if "{" not in self.address and not is_address(self.address):
            yield (
                ("address",),
                f"{self.address!r} is no address",
                "give HOST:PORT, IPv6 as [::1]:9002, or unix:/PATH of at most 107 bytes",
            )
        elif found := no_socket(self.address):
            yield ("address",), f"{self.address}: {found}", ITS_SOCKET
        file = self.discovery.file
        if file is not None and "{" not in file.path and (missing := no_folder(Path(file.path).parent)):
            yield ("discovery", "file", "path"), missing, "the suite writes the file there"


_TLS_FILES = ("ca", "cert", "key")
ITS_SOCKET = "give the path at which the target makes its socket"


def _placed(path: str | None, folder: Path) -> str | None:
    return path if path is None else str((folder / path).absolute())


def _socket_beside(address: str, folder: Path) -> str:
    """`unix:path` with a relative path read from `folder`; any other address as it is."""
    path = address.removeprefix(UNIX)
    return address if path == address or path.startswith(("/", "{")) else f"{UNIX}{(folder / path).absolute()}"


def no_socket(address: str) -> str | None:
    """What there is instead of the socket of an absolute `unix:/path`, in words. That nothing is there yet is no
    mistake: it is told when it is dialled, as for a port on which nothing listens."""
    path = socket_path(address) if "{" not in address else None
    try:
        return what_is_no_socket(path) if path else None
    except OSError:
        return None


def is_address(text: str) -> bool:
    """Whether a text is `host:port`, IPv6 in brackets, or `unix:/path`."""
    if text.startswith(UNIX):
        try:
            return socket_path(text) is not None
        except BadAddress:
            return False
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        return False
    return bool(re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+", host))
