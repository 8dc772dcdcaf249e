"""What an episode tells of the gauges that move picks, from logs written by hand."""

from __future__ import annotations

from scripted import Script, pod

from conformance.reading.gauges_followed import gauges_followed
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import load

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
IDLE = {"queue": 0, "kv": 0.1}


def served(script: Script, endpoint: str, times: int) -> None:
    for _ in range(times):
        script.exchange().request().upstream(endpoint)


def test_a_busy_pod_of_the_pool_before_does_not_count() -> None:
    scenario = next(one.scenario for one in load(Catalogue.load()) if one.scenario.id == "pool.gauges-followed")
    script = Script({"c": C})
    script.gauges("c", queue=100, kv=0.99)
    script.pool(pod("a", A), pod("b", B))
    served(script, A, 5)
    script.gauges("a", queue=64, kv=0.1)
    served(script, B, 16)
    script.gauges("a", **IDLE).gauges("b", queue=64, kv=0.1)
    served(script, A, 16)
    (found,) = gauges_followed(scenario, script.episode)
    assert (found.gauge, found.followed, found.busy, found.picks) == ("queue", "yes", 0, 32)
