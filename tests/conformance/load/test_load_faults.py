"""The load path and the fake proxy find the same in the same exchanges: samples of each kind of fault and variant."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections import defaultdict

import pytest

import reference_epp.faults
import reference_epp.variants
from conformance.evidence.episode import Context, Episode, PodFact, PoolState
from conformance.judges import judge
from conformance.load.judgement import Bench
from conformance.load.memory import Memory
from conformance.load.mix import MixedRequest, shape_of
from conformance.load.moments import Moments, State
from conformance.load.shape import PLACEHOLDER, RequestIds
from conformance.load.traffic import Traffic
from conformance.requirements.catalogue import Catalogue
from conformance.run.data_plane.stimuli import prepare
from conformance.run.engine import LagMeter
from conformance.scenario.schema import Exchange, Reply
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import Verdict
from ext_proc.channel import dial
from ext_proc.record import Recorder
from fake_proxy.exchange import run_exchange
from fake_proxy.pace import Pace
from fake_proxy.scripted import ScriptedUpstream
from reference_epp.deviations import FAULTS, VARIANTS
from reference_epp.server import Parts, running
from reference_epp.settings import parse

PODS = ("127.7.0.1:8000", "127.7.0.2:8000", "127.7.0.3:8000", "127.7.0.3:8001")
PATIENCE = 2.0
LATE = 0.3
"""Seconds that our loop, which is the EPP's too, may stand still: beyond that deadlines prove nothing."""
PROFILE = load_profile(REFERENCE)
CATALOGUE = Catalogue.load()
TELLING = (Verdict.FAIL, Verdict.WARN)
SSE = Reply(source="scripted", kind="sse", events=3)
JSON = Reply(source="scripted")

ASKED = {
    "plain": Exchange(reply=JSON, ending="drain"),
    "quick": Exchange(reply=JSON, ending="envoy"),
    "half-closed": Exchange(reply=JSON, ending="half-close", http=2),
    "bodyless": Exchange(method="GET", body="none", reply=JSON, ending="drain"),
    "sse": Exchange(reply=SSE, ending="drain"),
    "large": Exchange(body={"size": 100_000}, reply=JSON, ending="drain"),
    "trailers": Exchange(end="trailers", reply=SSE.model_copy(update={"trailers": (("x-t", "1"),)}), ending="drain"),
    "subset": Exchange(subset=PODS[1:2], reply=JSON, ending="drain"),
    "subset-of-two": Exchange(subset=PODS[:2], reply=JSON, ending="drain"),
    "nothing-left": Exchange(subset=("127.7.9.9:8000",), reply=JSON, ending="drain"),
    "sheddable": Exchange(sheddable=True, reply=JSON, ending="drain"),
    "not-json": Exchange(body={"text": "no json"}, reply=JSON, ending="drain"),
    "aborted": Exchange(abort="destination", reply=JSON),
    "chunks": Exchange(reply=JSON, chunks=3, http=2, ending="drain"),
}


def shapes(mode: str):
    found = []
    for name, asked in ASKED.items():
        exchange = asked.model_copy(update={"prompt": f"{PLACEHOLDER.decode()} hello"})
        prepared = prepare(
            exchange, index=0, mode=mode, profile=PROFILE, endpoints={"nobody": ("127.7.8.8:8000",)}, pool=PODS,
            rng=random.Random(1),
        )  # fmt: skip
        found.append(shape_of(prepared, MixedRequest(name=name, exchange=exchange)))
    return found


def telling(counts) -> set[tuple[str, Verdict]]:
    return {(requirement, verdict) for requirement, verdict in counts if verdict in TELLING}


async def by_the_fake_proxy(channel, kinds, context) -> dict[str, set]:
    """What the judges say of each request alone, as the fake proxy has it. All but the last wait side by side: that one
    has several pieces, and beside others the answer to its headers may come between two of them."""
    *others, last = kinds
    said = await asyncio.gather(*(alone(channel, kind, context) for kind in others))
    said.append(await alone(channel, last, context))
    return {kind.name: one for kind, one in zip(kinds, said, strict=True)}


async def alone(channel, kind, context) -> set:
    recorder, log = Recorder(), []
    recorder.listen(log.append)
    recorder.emit(PoolState(phase="effective", pods=facts()))
    own = next(iter(RequestIds()))
    await run_exchange(
        channel, kind.request_of(own), kind.config, kind.stimulus,
        ScriptedUpstream(lambda opening: kind.reply_to(opening.attempt, own)), recorder, "e",
        note=kind.note, pace=Pace(deadline=PATIENCE, ending_timeout=PATIENCE),
    )  # fmt: skip
    findings = judge(Episode(id="e", entries=tuple(log)), context, CATALOGUE)
    return telling((one.requirement, one.verdict) for one in findings)


async def by_memory(channel, kinds, context, times: int) -> tuple[dict[str, list[set]], Memory]:
    """The same on the load path, several times, so that the later ones are remembered."""
    memory = Memory(Bench(context, CATALOGUE), RequestIds(), ending_timeout=PATIENCE)
    moments = Moments(5)
    moments.asked(State(facts(), {}), time.monotonic())
    found: dict[str, list[set]] = {kind.name: [] for kind in kinds}
    traffic = Traffic(
        lambda: channel, memory, moments, deadline=PATIENCE, lag=LagMeter(),
        finished=lambda one: None, corrected=lambda one, earlier: None,
    )  # fmt: skip
    async with traffic:
        for _ in range(times):
            over = [traffic.start(kind, time.monotonic()) for kind in kinds]
            assert await traffic.drained(30)
            traffic.judge_late()
            for one in over:
                found[one.shape.name].append(telling(one.judgement.counts))
    return found, memory


def facts() -> tuple[PodFact, ...]:
    return (
        PodFact(name="a", endpoints=PODS[:1]), PodFact(name="b", endpoints=PODS[1:2]),
        PodFact(name="c", endpoints=PODS[2:]),
    )  # fmt: skip


async def compare(tmp_path, deviation, times: int):
    """What both say; once more where the machine stood still meanwhile."""
    meter = LagMeter()
    measuring = asyncio.ensure_future(meter.run())
    try:
        for _ in range(6):
            began = time.monotonic()
            said = await compared(tmp_path, deviation, times)
            if meter.worst(began) < LATE:
                break
        return said
    finally:
        measuring.cancel()


async def compared(tmp_path, deviation, times: int):
    version = "1.0.0" if "1.0.0" in deviation.versions else deviation.versions[-1]
    mode = "full-duplex" if "full-duplex" in deviation.modes else deviation.modes[0]
    file = tmp_path / "endpoints"
    file.write_text("\n".join(PODS))
    settings = parse(
        [f"--endpoints-file={file}", "--listen=127.0.0.1:0", f"--protocol-version={version}", "--model=llama-3",
         "--objective=batch=-1", "--patience=1.5s", "--scrape-interval=5s"]
    )  # fmt: skip
    context = Context(version=version, scenario="load", claims=PROFILE.claims, deadline=PATIENCE)
    kinds = shapes(mode)
    async with running(settings, Parts().exchange(*deviation.classes)) as addresses:
        channel = await dial(addresses["address"], connections=2)
        try:
            await asyncio.sleep(0.05)
            ordinary = await by_the_fake_proxy(channel, kinds, context)
            remembered, memory = await by_memory(channel, kinds, context, times)
        finally:
            await channel.close()
    return ordinary, remembered, memory


def exits(deviation) -> bool:
    """Whether it ends its process, which here is ours."""
    methods = [one for played in deviation.classes for one in vars(played).values() if inspect.isfunction(one)]
    return any("_exit" in inspect.unwrap(one).__code__.co_names for one in methods)


assert reference_epp.faults
assert reference_epp.variants, "importing the packages declares their contents"
DEVIATIONS = {**FAULTS, **VARIANTS}


def samples() -> list[str]:
    """A fault of each module and five variants, none of which ends the process, which is ours; `SEVERAL` besides."""
    chance, by_module = random.Random(1), defaultdict(list)
    for name, one in sorted(DEVIATIONS.items()):
        if name not in {*SEVERAL, *ALSO} and not exits(one):
            by_module[one.classes[0].__module__ if name in FAULTS else "variants"].append(name)
    chosen = {*SEVERAL}
    for module, names in by_module.items():
        chosen.update(chance.sample(names, min(len(names), 5 if module == "variants" else 1)))
    return sorted(chosen)


SEVERAL = ("no-metadata-one-time-in-twenty", "previous-destination", "refused-on-their-headers")
"""Faults that depend on the number of exchanges before: no two runs of requests see the same of them."""

ALSO = {
    "fifth-stream-without-a-pool", "no-header-after-forty-streams", "picks-taken-back", "stranger-one-time-in-twenty",
    "streamed-response-when-buffered", "subset-kept-for-requests-without",
}  # fmt: skip
"""Others of that kind, which are left out."""


@pytest.mark.parametrize("name", samples())
def test_a_deviation_gets_the_same_verdicts(tmp_path, name) -> None:
    """First and remembered, for the same requirements; the load path sees frames after Envoy's reset, too."""
    deviation = DEVIATIONS[name]
    declared = {getattr(deviation, "breaks", None), *getattr(deviation, "also_breaks", {})}
    ordinary, remembered, memory = asyncio.run(compare(tmp_path, deviation, 2))
    for kind, found in ordinary.items():
        for times, got in enumerate(remembered[kind]):
            late = got - found if name in SEVERAL or kind in ("quick", "aborted") else set()
            assert {requirement for requirement, _ in late} <= declared
            if name not in SEVERAL:
                assert got - late == found, f"{kind}, time {times}"
    assert memory.counts.exchanges or memory.counts.opaque or name in SEVERAL
