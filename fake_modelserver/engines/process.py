"""What Prometheus clients show of the process that they run in, in the order in which a page begins with it."""

from __future__ import annotations

from typing import Literal

from fake_modelserver.engines.families import Family, Sample

_GC = (("0", 15_214), ("1", 1_383), ("2", 61))


def process(started: float) -> tuple[Family, ...]:
    """The families of a process that started at Unix time `started` (seconds)."""
    counters = [
        ("python_gc_objects_collected_total", "Objects that the garbage collector has freed.", 3),
        ("python_gc_objects_uncollectable_total", "Objects that the garbage collector could not free.", 0),
        ("python_gc_collections_total", "Times that each generation was collected.", 1),
    ]
    version = {"implementation": "CPython", "major": "3", "minor": "12", "patchlevel": "11", "version": "3.12.11"}
    figures: list[tuple[str, str, Literal["gauge", "counter"], float]] = [
        ("process_virtual_memory_bytes", "Virtual memory in bytes.", "gauge", 21_474_836_480.0),
        ("process_resident_memory_bytes", "Resident memory in bytes.", "gauge", 1_073_741_824.0),
        ("process_start_time_seconds", "When the process started, in seconds since the epoch.", "gauge", started),
        ("process_cpu_seconds_total", "Processor time spent, user and system, in seconds.", "counter", 31.25),
        ("process_open_fds", "Open file descriptors.", "gauge", 67.0),
        ("process_max_fds", "Most file descriptors that may be open.", "gauge", 1_048_576.0),
    ]
    return (
        *[
            _constant(name, text, "counter", [({"generation": one}, share * n) for one, n in _GC])
            for name, text, share in counters
        ],
        _constant("python_info", "The Python that runs this.", "gauge", [(version, 1)]),
        *[_constant(name, text, kind, [({}, value)]) for name, text, kind, value in figures],
    )


def _constant(name: str, text: str, kind: Literal["gauge", "counter"], samples: list[Sample]) -> Family:
    return Family(name=name, help=text, kind=kind, process=True, bare=True, constant=lambda _: samples)
