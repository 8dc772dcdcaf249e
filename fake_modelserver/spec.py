"""What a pod is: given when it is added, and unchanged as long as it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from fake_modelserver.engines import Engine, Generation, generation
from fake_modelserver.engines.families import Identity
from fake_modelserver.gauges import Decoy, Gauges
from fake_modelserver.lora import LoraForm
from fake_modelserver.scheduler import Serving


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """What a pod is. `name` is unique in its fleet.

    - Without `address` the fleet gives one; without `ports` the pod has the fleet's port (or, where pods share an
      address, a separate port). The pod serves everything on each of its ports.
    - `models` are base models, `adapters` LoRA adapters that are accepted besides those in the gauges; `any_model`
      accepts every name; `adapters_loadable`: the API loads and unloads adapters.
    - `engine` and `generation` (default: its newest) say whose families, labels and API it has; `page` whether all of
      its families or only those that the protocol names. `metrics_path` and `metrics_port` (0: any free one) move the
      page away from where the generation has it.
    - `ranks` is how many data-parallel engines it runs, the first of number `first_rank`: all on one page, or with
      `rank_ports` each on a port for itself. `gauges` are those of every rank to begin with; `decoys` further series.
      Requests go to the rank with the least to do, or with `ranks_in_turn` to one after the other.
    - `block_size` (tokens) and `num_gpu_blocks` describe the KV cache of a rank; `lora` is how the LoRA metric is
      written, default: as the generation does.
    - `shown_as` makes what the page shows of what the gauges are; None: just that.
    - `serving` is how it takes requests: gauges then follow from them. None: every answer is there at once, and the
      gauges are as they are set.

    Raises `ValueError` if a value makes no sense.
    """

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
    gauges: Gauges = field(default_factory=Gauges)
    shown_as: Callable[[Gauges], Gauges] | None = None
    decoys: tuple[Decoy, ...] = ()
    lora: LoraForm | None = None
    serving: Serving | None = None

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise ValueError(f"name is {self.name!r}; a pod has a printable name")
        if not self.models or not all(self.models):
            raise ValueError(f"models are {self.models!r}; a pod serves at least one, and each has a name")
        if any(not 0 <= port <= 65535 for port in (*self.ports, self.metrics_port or 0)):
            ports = (*self.ports, *([] if self.metrics_port is None else [self.metrics_port]))
            raise ValueError(f"ports are {ports!r}; a port is a number from 0 (any free one) to 65535")
        if self.engine not in set(Engine):
            raise ValueError(f"engine is {self.engine!r}; known: {', '.join(Engine)}")
        self.kind  # noqa: B018 - raises for a generation that is not known
        if self.page not in ("minimal", "real"):
            raise ValueError(f"page is {self.page!r}; it is minimal or real")
        if self.metrics_path is not None and not self.metrics_path.startswith("/"):
            raise ValueError(f"metrics_path is {self.metrics_path!r}; it begins with /")
        if self.block_size < 1 or self.num_gpu_blocks < 2:
            raise ValueError("block_size is a whole number from 1 and num_gpu_blocks one from 2")
        if self.serving and not self.serving.max_loras and (self.adapters or self.adapters_loadable):
            raise ValueError("max_loras is 0; a pod that serves adapters has place for at least one")
        if not 1 <= self.ranks <= 64 or self.first_rank < 0:
            raise ValueError(f"ranks are {self.ranks!r}, from {self.first_rank!r}; there are 1 to 64, counted from 0")
        if self.ranks > 1 and not (self.rank_ports or self.kind.ranked):
            raise ValueError(
                f"ranks are {self.ranks!r}; {self.engine} {self.kind.name} has no label to tell them apart"
            )
        if self.rank_ports and self.ports and len(self.ports) != self.ranks:
            raise ValueError(f"ports are {self.ports!r}; with rank_ports each of the {self.ranks} ranks has one")
        if len({(decoy.label, decoy.value) for decoy in self.decoys}) != len(self.decoys):
            raise ValueError(f"decoys are {self.decoys!r}; each has a label and value for itself")

    @property
    def kind(self) -> Generation:
        """The generation of the engine."""
        return generation(Engine(self.engine), self.generation)

    @property
    def page_path(self) -> str:
        """Where the page is."""
        return self.metrics_path or self.kind.metrics_path

    @property
    def page_port(self) -> int | None:
        """The port that only the page is on; None: it is on the serving ports."""
        return self.kind.metrics_port if self.metrics_port is None else self.metrics_port

    def identity(self, *, ranks: int, first_rank: int) -> Identity:
        """What the page of some of the ranks says about the pod."""
        return Identity(
            model_name=self.models[0],
            first_rank=first_rank,
            ranks=ranks,
            block_size=self.block_size,
            num_gpu_blocks=self.num_gpu_blocks,
        )
