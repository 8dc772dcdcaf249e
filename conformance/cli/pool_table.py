"""What `pool` shows while it serves: each pod with its gauges, its scrapes and its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.printable import plural

if TYPE_CHECKING:
    from rich.table import Table

    from fake_modelserver import Fleet

MOST = 40
"""Pods that are shown."""


def table(fleet: Fleet) -> Table:
    """The pods as they are now; several ranks of one are shown one after the other."""
    from rich.table import Table

    pods = list(fleet.pods.values())
    more = f"{plural(len(pods) - MOST, 'pod')} more" if len(pods) > MOST else None
    found = Table(caption=more)
    found.add_column("pod")
    found.add_column("endpoint")
    found.add_column("engine")
    for name in ("queue", "running", "KV", "scrapes", "requests"):
        found.add_column(name, justify="right")
    found.add_column("adapters")
    found.add_column("faults")
    for pod in pods[:MOST]:
        ranks = pod.all_gauges
        adapters = dict.fromkeys(name for one in ranks for name in one.running_loras)
        found.add_row(
            pod.name,
            pod.endpoint if pod.accepting else f"{pod.endpoint} refuses",
            f"{pod.spec.engine} {pod.spec.kind.name}",
            " ".join(f"{one.queue:g}" for one in ranks),
            " ".join(f"{one.running:g}" for one in ranks),
            " ".join(f"{one.kv:.0%}" for one in ranks),
            str(pod.scrapes),
            str(pod.served),
            ", ".join(adapters),
            ", ".join(active.fault.name for active in pod.faults),
        )
    return found
