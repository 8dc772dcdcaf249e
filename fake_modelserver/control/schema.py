"""What the control endpoint takes, as pydantic models: they check requests, and are schemas of its OpenAPI document.

A file of YAML that describes a fleet has the same fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fake_modelserver import signals
from fake_modelserver.engines import Engine
from fake_modelserver.faults import Fault, FaultType
from fake_modelserver.gauges import Decoy, Gauges, LoraSeries
from fake_modelserver.lora import LoraForm
from fake_modelserver.scheduler import Serving
from fake_modelserver.spec import PodSpec

_PLAIN = ConfigDict(extra="forbid", strict=True)


class ConstantSignal(BaseModel):
    """Always the same value."""

    model_config = _PLAIN
    kind: Literal["constant"]
    value: float

    def signal(self) -> signals.Signal:
        """The signal."""
        return signals.Constant(value=self.value)


class RampSignal(BaseModel):
    """From `start` to `stop` in `seconds`."""

    model_config = _PLAIN
    kind: Literal["ramp"]
    start: float
    stop: float
    seconds: float
    repeat: bool = False

    def signal(self) -> signals.Signal:
        """The signal."""
        return signals.Ramp(start=self.start, stop=self.stop, seconds=self.seconds, repeat=self.repeat)


class SquareSignal(BaseModel):
    """`high` for the share `duty` of every `period` seconds, then `low`."""

    model_config = _PLAIN
    kind: Literal["square"]
    low: float
    high: float
    period: float
    duty: float = 0.5

    def signal(self) -> signals.Signal:
        """The signal."""
        return signals.Square(low=self.low, high=self.high, period=self.period, duty=self.duty)


class ReplaySignal(BaseModel):
    """Recorded points, each seconds and the value from then on."""

    model_config = _PLAIN
    kind: Literal["replay"]
    points: list[tuple[float, float]] = Field(min_length=1, max_length=100_000)
    repeat: bool = False

    def signal(self) -> signals.Signal:
        """The signal."""
        return signals.Replay(points=tuple(self.points), repeat=self.repeat)


AnySignal = Annotated[ConstantSignal | RampSignal | SquareSignal | ReplaySignal, Field(discriminator="kind")]
SIGNAL: TypeAdapter[AnySignal] = TypeAdapter(AnySignal)

# The values of the Python API are dataclasses that check themselves; pydantic reads them field by field.
GAUGES = TypeAdapter(Gauges)


class FaultModel(BaseModel):
    """A fault: its type with its attributes, and which requests it befalls."""

    model_config = ConfigDict(extra="forbid")
    type: FaultType
    name: str = Field("", description="tells it from the others of a pod; default: its type")
    path: str | None = Field(None, description="a pattern for paths, as /v1/*; default: by type")
    after: int = Field(0, description="so many requests go well first")
    count: int | None = Field(None, description="then it befalls so many; default: all")
    toxicity: float = Field(1.0, description="the share of those that it befalls")
    duration: float | None = Field(None, description="milliseconds until it ends; default: none")
    attributes: dict[str, Any] = Field(default={}, description="those of its type: GET /faults lists them")

    def fault(self) -> Fault:
        """The fault. Raises `ValueError`."""
        return Fault(**self.model_dump())


class PodModel(BaseModel):
    """A pod, as `PodSpec` describes it."""

    model_config = ConfigDict(extra="forbid")
    name: str
    address: str | None = None
    ports: tuple[int, ...] = ()
    models: tuple[str, ...] = ("fake-model",)
    adapters: tuple[str, ...] = ()
    any_model: bool = False
    adapters_loadable: bool = False
    engine: Engine = Engine.VLLM
    generation: str | None = None
    page: Literal["minimal", "real"] = "minimal"
    metrics_path: str | None = None
    metrics_port: int | None = None
    ranks: int = 1
    first_rank: int = 0
    rank_ports: bool = False
    ranks_in_turn: bool = False
    block_size: int = 16
    num_gpu_blocks: int = 2048
    gauges: Gauges = Field(default_factory=Gauges)
    decoys: tuple[Decoy, ...] = ()
    lora: LoraForm | None = None
    serving: Serving | None = None
    faults: tuple[FaultModel, ...] = ()

    def spec(self) -> PodSpec:
        """The pod without its faults. Raises `ValueError`."""
        return PodSpec(**{name: getattr(self, name) for name in type(self).model_fields if name != "faults"})


class PodChange(BaseModel):
    """What may change of a pod; what is left out stays."""

    model_config = ConfigDict(extra="forbid", strict=True)
    healthy: bool | None = Field(None, description="what /health says: 200 or 503")
    accepting: bool | None = Field(None, description="whether connections are accepted")
    adapters: list[str] | None = Field(None, description="the LoRA adapters that are loaded")


class Restart(BaseModel):
    """How a pod restarts."""

    model_config = ConfigDict(extra="forbid")
    down: float = Field(0.0, ge=0, le=3600, description="seconds for which connections are refused")


__all__ = [
    "GAUGES",
    "SIGNAL",
    "AnySignal",
    "Decoy",
    "FaultModel",
    "Gauges",
    "LoraSeries",
    "PodChange",
    "PodModel",
    "Restart",
]
