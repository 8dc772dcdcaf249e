"""The schema of scenario files, published as JSON Schema (`epp-conformance list --schema`).

A file is a `ScenarioFile`; its scenarios are data: a pool, steps from a closed set, a matrix of variants, no conditions
and no loops. Strings may hold references in braces, resolved when a scenario is about to run:

* `{name}`: a variable of the matrix; if its value names a pod, that pod's endpoint,
* `{a}`: the first endpoint of pod `a` as `ip:port`; `{a/1}`: the one on its second port; `{a.ip}`: its address alone;
  `{a.wrong-port}`: with a port that no pod has; `{a.cut-port}`: without the port's last digit; `{a.cut-address}`:
  without the address's last digit; `{a.late-address}`: without its first one (IPv4); `{nobody}`: of no pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from conformance.scenario.epp_script import EppScript
from conformance.scenario.expect import Expect
from conformance.scenario.header_fields import Base64, HeaderPairs
from conformance.scenario.model_server import Ask, LoadStep, ScrapeStep
from conformance.scenario.models import NOT_SERVED, NamedBy
from conformance.scenario.pool import KubernetesStep, Load, Name, Pool, PoolStep
from conformance.scenario.unread_connection import UnreadConnectionStep
from conformance.strict_yaml import FileModel

Role = Literal["epp", "data-plane", "model-server"]
BodyMode = Literal["none", "buffered", "streamed", "full-duplex"]

MOST_BYTES = 64 * 1024 * 1024
"""Size of a body, at most: what a fake model server takes."""


# -- steps -------------------------------------------------------------------------------------------------------------


class BodySpec(FileModel):
    """A request body that is not the ordinary completion request. Give one of `json`, `text`, `base64`, `size`."""

    json_: Any = Field(None, alias="json", description="this JSON value")
    fields: dict[str, Any] = Field(
        default={}, description="set these in the ordinary JSON body; null removes the model or prompt"
    )
    text: str | None = Field(None, description="these characters, UTF-8")
    base64: Base64 | None = Field(None, description="these bytes")
    size: int | None = Field(
        None, gt=0, le=MOST_BYTES, description="the ordinary JSON body, its prompt filled up to so many bytes"
    )
    wide: bool = Field(False, description="with `size`: filled up with characters of four bytes each")
    written: Literal["spaced", "compact", "escaped", "indented"] = Field(
        "spaced",
        description="how JSON is written: in one line with blanks, or without any; all but ASCII escaped; in lines, "
        "with a blank one before and after it",
    )

    @model_validator(mode="after")
    def _fills_with_something(self) -> BodySpec:
        if self.wide and self.size is None:
            raise ValueError("`wide` needs a `size`")
        given = [name for name in ("json_", "text", "base64", "size") if name in self.model_fields_set]
        if len(given) > 1:
            raise ValueError(f"give one of json, text, base64 and size, not {' and '.join(given).replace('_', '')}")
        return self


class Reply(FileModel):
    """What the model server answers; ordinary JSON with usage unless said otherwise."""

    source: Literal["model-server", "scripted", "local-reply", "refused", "never"] = Field(
        "model-server",
        description="the picked pod over HTTP; a script; the data plane itself, as no endpoint is reached; the data "
        "plane itself, before the target was asked; none",
    )
    status: int = Field(200, ge=100, le=999, description="the HTTP status")
    headers: HeaderPairs = Field((), description="further headers, as [name, value]")
    kind: Literal["json", "sse", "text", "binary", "none"] = Field("json", description="what the body is")
    json_: Any = Field(None, alias="json", description="this JSON value as the body")
    text: str | None = Field(None, description="this text as the body")
    base64: Base64 | None = Field(None, description="these bytes as the body")
    size: int | None = Field(None, gt=0, le=MOST_BYTES, description="a generated body of so many bytes")
    events: int = Field(5, ge=0, le=10_000, description="how many SSE events, if `text` does not say which")
    filler: int = Field(0, ge=0, le=MOST_BYTES, description="so many characters more in the JSON or first event")
    split: int | None = Field(None, gt=0, description="bytes per chunk, whatever the events")
    gzip: bool = Field(False, description="the body is compressed")
    trailers: HeaderPairs | None = Field(None, description="trailers after the body, as [name, value]")
    early: bool = Field(False, description="the response begins before the request body is complete")
    coalesced: bool = Field(False, description="the last chunk carries the end of the body, of source scripted")
    lock_step: bool = Field(False, description="the next chunk comes only after the echo of the one before")
    gap_seconds: float = Field(0, ge=0, le=40, description="pause between chunks")
    delay_seconds: float = Field(0, ge=0, le=5, description="pause before the head, of source model-server")
    cut: bool = Field(False, description="role data-plane: the connection is closed before the response has its end")

    @property
    def pause(self) -> float:
        """Seconds in which it does nothing, about."""
        return self.delay_seconds + self.gap_seconds * (self.events + 1)


Abort = Literal["request-headers", "request-body", "destination", "response"]

ABORTED_AT: Mapping[Abort, str] = {
    "request-headers": "request-headers",
    "request-body": "request-body",
    "destination": "destination",
    "response": "response-body",
}
"""The point of an exchange at which the log says that the client went away."""

Inject = Literal[
    "duplicate-end",
    "unknown-field",
    "unknown-message",
    "typed-metadata",
    "attributes",
    "malformed-message",
    "malformed-grpc",
    "http2-unknown-frame",
    "http2-data-on-connection",
    "http2-short-settings",
    "http2-zero-window",
    "http2-bad-headers",
    "http2-garbage",
]
"""Those that begin with `http2-` spoil the connection: give the exchange a fresh one (`connection: fresh`)."""

CHAT_PATH = "/v1/chat/completions"
"""What scenarios call the path of chat requests, wherever a target has it."""


class ClientRequest(FileModel):
    """A client's HTTP request, and what the model server answers."""

    method: str = Field("POST", description="the HTTP method")
    path: str | None = Field(
        None, description="default: the profile's path; `/v1/chat/completions` stands for its `chatPath`"
    )
    headers: HeaderPairs = Field((), description="headers, as [name, value], before the profile's")
    query_filler: int = Field(0, ge=0, le=30_000, description="so many characters more at the end of `path`, a query")
    filler_headers: int = Field(0, ge=0, le=200, description="so many client headers more, the first of 9,000 bytes")
    http: Literal[1, 2] = Field(1, description="the client's HTTP version, which shapes chunks and end of stream")
    model: str = Field(
        "known",
        description="`known`; `unknown`, or nearly known: `other-case`, `beginning`, `extended`, `prefixed`; "
        "`of-another-pool`, `of-another-namespace`: of the InferenceModels that come with `other-pools`; or a name",
    )
    prompt: str = Field("fresh", description="`fresh`: never used before; or the text")
    sheddable: bool = Field(False, description="marked as the profile says that sheddable requests are")
    body: Literal["default", "none", "empty"] | BodySpec = Field(
        "default",
        description="the ordinary JSON request (for GET and HEAD: none), no body, one of no bytes, or another",
    )
    chunks: int | tuple[int, ...] = Field(1, description="how many equal chunks, or the sizes of all but the last")
    end: Literal["default", "flag", "empty", "trailers"] = Field("default", description="how the body ends")
    trailers: HeaderPairs = Field((), description="trailers after the body, as [name, value]")
    coalesced: bool = Field(
        False, description="over HTTP/2 each chunk arrives as one piece, as large as it is, not in frames of 16 KiB"
    )
    content_length: bool = Field(True, description="the length is said beforehand; else the body is chunked")
    subset: tuple[str, ...] | None = Field(None, description="the subset hint: a list of endpoints")
    reply: Reply = Field(Reply.model_construct(), description="what the model server answers")
    abort: Abort | None = Field(None, description="where the client goes away")
    repeat: int = Field(1, ge=1, le=1000, description="how often it is sent")
    concurrent: int = Field(1, ge=1, le=1000, description="so many of the repeats at a time")

    @model_validator(mode="after")
    def _fills_a_query(self) -> ClientRequest:
        if self.query_filler and "?" not in (self.path or ""):
            raise ValueError("`queryFiller` needs a `path` with a query")
        return self


class Exchange(ClientRequest):
    """One HTTP request through the data plane, or several alike."""

    mode: BodyMode | None = Field(None, description="request body mode; default: the run's")
    response_mode: BodyMode | None = Field(None, description="response body mode; default: the run's")
    authority: str = Field("gateway.example", min_length=1, description="whom the client asks")
    omit_headers: tuple[Literal["content-type", "x-request-id"], ...] = Field((), description="usual headers left out")
    subsets: tuple[tuple[str, ...], ...] = Field((), description="subsets that the repeats take in turn")
    models: tuple[str, ...] = Field((), description="models that the repeats take in turn, as in `model`")
    unnamed: bool = Field(False, description="no InferenceModel of the pool names its model at that time")
    hint: Any = Field(None, description="the subset hint as any other JSON value")
    hint_namespace: str | None = Field(None, description="the hint's metadata namespace; default: the profile's")
    hint_filler: int = Field(0, ge=0, le=5000, description="so many endpoints of no one, before those of the subset")
    hint_on: Literal["every", "headers", "body"] = Field("every", description="which messages carry the hint")
    metadata: dict[str, dict[str, Any]] = Field(default={}, description="further filter metadata")
    metadata_context: Literal["default", "absent"] = Field("default", description="whether messages carry any metadata")
    protocol_config: Literal["default", "absent", "waiting", "not-waiting"] = Field(
        "default",
        description="protocol_config of the first message: the body modes, none, or that and send_body_without_waiting",
    )
    header_field: Literal["raw_value", "value", "both"] = Field("raw_value", description="where header values are")
    inject: tuple[Inject, ...] = Field((), description="what messages hold beyond the ordinary")
    served: Literal["default", "absent", "unknown", "other", "ipv6", "number", "list", "empty"] = Field(
        "default", description="the endpoint reported with the response headers: the real one, none, or something odd"
    )
    ending: Literal["envoy", "half-close", "drain", "rotate"] = Field(
        "rotate", description="rotate: the first is drained, then half-close and Envoy's reset in turn"
    )
    connection: Literal["shared", "fresh"] = Field("shared", description="fresh: on its own connection")
    fail_first: int = Field(0, ge=0, le=5, description="so many of the picked endpoints answer 503 first")
    interleaved: bool = Field(False, description="after their first chunk all wait until the last ones are answered")
    lock_step: bool = Field(False, description="a chunk of the request comes when the one before was let through")
    gap_seconds: float = Field(0, ge=0, le=5, description="pause before each chunk of the request")

    @property
    def note(self) -> dict[str, Any]:
        """What judges can't read off the messages."""
        note: dict[str, Any] = {}
        if self.sheddable:
            note["sheddable"] = True
        if self.model in NOT_SERVED or self.unnamed:
            note["unknown_model"] = True
        if self.inject:
            note["inject"] = list(self.inject)
        return note

    @model_validator(mode="after")
    def _interleaves(self) -> Exchange:
        if self.interleaved and (self.concurrent < 2 or self.repeat < 2 or self.chunks == 1):
            raise ValueError("`interleaved` needs several repeats at a time (`concurrent`) of several `chunks`")
        if self.reply.cut:
            raise ValueError("`cut` is for replies to a gateway under test")
        if self.reply.coalesced and self.reply.source != "scripted":
            raise ValueError("`coalesced` is for replies of `source: scripted`")
        if self.models and "model" in self.model_fields_set:
            raise ValueError("`model` has no effect beside `models`")
        return self


class Request(ClientRequest):
    """One HTTP request to the gateway under test, or several alike, and what its EPPs do for it."""

    epp: EppScript = Field(EppScript.model_construct(), description="what the EPP does for it")
    second_epp: EppScript = Field(EppScript.model_construct(), description="the EPP of the second pool")
    split: bool = Field(False, description="it takes the route that splits requests over both pools")
    connection: Literal["shared", "fresh"] = Field("fresh", description="shared: the repeats use one connection")
    written: Literal["ordinary", "absolute-form", "http-1.0"] = Field(
        "ordinary", description="how a client of HTTP/1 writes it: with its whole URL, or in version 1.0"
    )

    @model_validator(mode="after")
    def _visible_to_a_client(self) -> Request:
        if self.abort == "destination":
            raise ValueError("a client does not see when an endpoint is chosen: abort at another point")
        if self.connection == "shared" and (self.http != 1 or self.concurrent > 1 or self.abort):
            raise ValueError("`connection: shared` is for HTTP/1.1 requests, one after the other, to their end")
        if self.written != "ordinary" and (self.http != 1 or not self.content_length or self.end == "trailers"):
            raise ValueError("`written` is for HTTP/1 requests with the length of their body")
        return self


Conduct = Literal["serves", "refuses", "resets", "503"]


class HealthStep(FileModel):
    """One gRPC health check; the answer is judged by the health rules and by `expect`."""

    service: str = Field(description="the service asked about; empty: the whole server")


class StartWith(FileModel):
    """Starts another copy of the target with a configuration of the reporter that may be wrong."""

    attributes: tuple[Any, ...] = Field(description="the `attributes` of its one reporter")


_ANSWERED = ("exchange", "health", "request", "start_with")


class Step(FileModel):
    """One step: exactly one of the actions, and what is expected of it.

    `exchange`, `pool`, `gauges`, `health`, `kubernetes`, `models`, `restart`, `startWith` and `unreadConnection` test
    an EPP; `request`, `pods` and `epps` test a gateway; `ask`, `load` and `scrape` test a model server.
    """

    exchange: Exchange | None = Field(None, description="send a request through the data plane")
    pool: PoolStep | None = Field(None, description="change the pool")
    gauges: dict[Name, Load] | None = Field(None, description="change what the pods' metrics show, by pod")
    health: HealthStep | None = Field(None, description="ask for its health")
    kubernetes: KubernetesStep | None = Field(None, description="trouble the Kubernetes API")
    models: dict[Name, NamedBy] | None = Field(
        None,
        description="change the InferenceModels that name these models, in order: one of the pool; that one with "
        "another criticality and other weights (updated); two; only the second of them; one of another pool; none",
    )
    restart: Literal["target"] | None = Field(None, description="restart the target")
    start_with: StartWith | None = Field(None, description="start another copy of it with a configuration")
    unread_connection: UnreadConnectionStep | None = Field(None, description="hold a connection and read nothing of it")
    request: Request | None = Field(None, description="send a request to the gateway")
    pods: dict[Name, Conduct] | None = Field(None, description="how pods take requests from here on")
    epps: dict[Literal["first", "second"], Literal["up", "down"]] | None = Field(None, description="which EPPs listen")
    ask: Ask | None = Field(None, description="send a request to the API of the model server")
    load: LoadStep | None = Field(None, description="load the model server until its metrics show it")
    scrape: ScrapeStep | None = Field(None, description="read the model server's metrics")
    expect: Expect | None = Field(None, description="what must come back")

    @property
    def action(self) -> str:
        """The name of its action."""
        return next(name for name in ACTIONS if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _one_action(self) -> Step:
        actions = [name for name in ACTIONS if getattr(self, name) is not None]
        if len(actions) != 1:
            raise ValueError(f"a step has exactly one action, this one has {', '.join(actions) or 'none'}")
        if self.expect is not None and actions[0] not in _ANSWERED:
            raise ValueError(f"nothing comes back from a {actions[0]} step, so it can't have `expect`")
        return self


ACTIONS_OF: Mapping[Role, tuple[str, ...]] = {
    "epp": (
        *("exchange", "pool", "gauges", "health", "kubernetes", "models"),
        *("restart", "start_with", "unread_connection"),
    ),
    "data-plane": ("request", "pods", "epps"),
    "model-server": ("ask", "load", "scrape"),
}
ACTIONS = tuple(name for names in ACTIONS_OF.values() for name in names)


# -- scenarios ---------------------------------------------------------------------------------------------------------

Need = Literal[
    "ipv6",
    "shedding",
    "queueing",
    "kubernetes",
    "health",
    "fallback-lists",
    "models",
    "engines",
    "reporter",
    "full-duplex",
    "buffered",
    "streamed",
    "retries",
    "split",
    "two-pools",
    "subset-hint",
    "fail-open",
    "fail-closed",
    "reads-header",
    "reads-metadata",
    "lora",
    "adapters",
]


class Scenario(FileModel):
    """A stimulus with expectations, naming the requirements that it exercises."""

    id: str = Field(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$", description="area.situation-and-expectation")
    aliases: tuple[str, ...] = Field((), description="ids that it had before")
    title: str = Field(description="what must hold, in a sentence")
    requirements: tuple[str, ...] = Field(
        min_length=1, description="the requirements that it exercises; it fails on these only"
    )
    versions: tuple[str, ...] | None = Field(None, description="default: all versions that have the requirements")
    stimulus: Literal["contract", "off-contract"] = Field(
        "contract",
        description="off-contract: the suite breaks the protocol, and only crash, hang, mix-up and membership count",
    )
    provisional: bool = Field(False, description="runs and is reported, and does not count yet")
    isolated: bool = Field(False, description="runs alone")
    smoke: bool = Field(False, description="part of the smoke set")
    slow: bool = Field(False, description="runs only when asked for, and in `certify`")
    needs: tuple[Need, ...] = Field((), description="what the target must have or claim; otherwise it does not apply")
    modes: tuple[BodyMode, ...] = Field(
        (), description="request body modes in which it makes sense; default: all driven"
    )
    pool: Pool = Field(Pool.model_construct(), description="the pool that it starts from")
    matrix: dict[str, tuple[Any, ...]] = Field(
        {}, description="variables and their values: one instance for each combination"
    )
    combine: Literal["all", "pairs", "each"] = Field(
        "all",
        description="pairs: not every combination, only so many that every two values of two variables meet in one; "
        "each: so many that every value is in one",
    )
    without: tuple[dict[str, tuple[Any, ...]], ...] = Field(
        (), description="combinations left out: those whose variables all have one of the values listed"
    )
    steps: tuple[Step, ...] = Field(min_length=1, max_length=200, description="what is done, in order")


class ScenarioFile(FileModel):
    """One file: the scenarios of one section of the protocol."""

    section: str = Field(description="the section of the protocol that they are about")
    role: Role = Field("epp", description="whom its scenarios test: an EPP, a gateway (data-plane) or a model server")
    scenarios: tuple[Scenario, ...] = Field(description="the scenarios")
