"""The engines that a pod can be, by generation: families of metrics, labels, endpoints, and the shape of errors.

A generation is a release whose page differs from its neighbours' in what endpoint pickers read. The names of families
are those of the model server protocol, "Metrics Reporting" (the table), and of the releases themselves.
"""

from __future__ import annotations

from fake_modelserver.engines import sglang, tensorrt_llm, vllm
from fake_modelserver.engines.generation import Engine, Generation

GENERATIONS: dict[Engine, dict[str, Generation]] = {
    engine: {generation.name: generation for generation in found}
    for engine, found in (
        (Engine.VLLM, vllm.GENERATIONS),
        (Engine.SGLANG, sglang.GENERATIONS),
        (Engine.TRTLLM_SERVE, tensorrt_llm.SERVE),
        (Engine.TRITON, tensorrt_llm.TRITON),
    )
}
"""Every generation of every engine by its name; the first of an engine is its newest, which a pod is by default."""


def generation(engine: Engine, name: str | None = None) -> Generation:
    """The generation `name` of `engine`, or its newest. Raises `ValueError`, which lists the known ones."""
    known = GENERATIONS[engine]
    if name is None:
        return next(iter(known.values()))
    if name not in known:
        raise ValueError(f"generation is {name!r}; of {engine} the fleet knows {', '.join(known)}")
    return known[name]


__all__ = ["GENERATIONS", "Engine", "Generation", "generation"]
