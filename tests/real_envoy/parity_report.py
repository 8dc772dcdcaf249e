"""The parity matrix as a report: its size and result, and the tables of docs/reference/envoy-parity.md.

`PYTHONPATH=.:tests/real_envoy python -m parity_report` runs the matrix, prints the result and writes the page.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parity_allowed import ALLOWED, allowed_fields
from parity_cases import cases
from parity_compare import differences
from parity_gateways import GATEWAYS
from parity_stack import Case, Stack

_BEGIN, _END = "<!-- generated: begin -->", "<!-- generated: end -->"
_SIDES = {
    "fake": "To be mended in the fake",
    "envoy": "Defects of Envoy, not imitated",
    "wire": "Left to chance on the wire",
}
_EXCUSED = (
    # the same gRPC status, with more of the connection's history in Envoy's words
    ("ext_proc_error_gRPC_error_", "ext_proc_error_gRPC_error_"),
)


async def differing_details(stack: Stack, chosen: Iterable[Case]) -> dict[str, tuple[str, str]]:
    """Run `chosen`; where RESPONSE_CODE_DETAILS differ: the fake's, and Envoy's out of its access log."""
    already = len(await _access_log(stack))
    for case in chosen:
        await stack.run(case)
    log = (await _access_log(stack))[already:]
    cases = stack.asked[already:]
    pairs = {case: (stack.details[case], line["details"]) for case, line in zip(cases, log, strict=True)}
    return {case: pair for case, pair in pairs.items() if pair[0] != pair[1]}


async def _access_log(stack: Stack) -> list[dict[str, Any]]:
    """The access log, when it has a line for each request so far: Envoy writes in batches."""
    async with asyncio.timeout(10):
        while len(log := stack.envoy.access_log()) < len(stack.asked):
            await asyncio.wait([stack.envoy.exited], timeout=0.005)
            stack.envoy.check()
    return log


def details_excused(case: str, fake: str, real: str) -> bool:
    """Whether the details differ only in how much they tell, or in a case whose response may differ anyhow."""
    if "client" in allowed_fields(case):
        return True
    return any(fake.startswith(ours) and real.startswith(theirs) for ours, theirs in _EXCUSED)


def table() -> str:
    """The generated part of the page."""
    found = cases()
    kinds = Counter(case.partition("/")[0] for case in found)
    lines = [_BEGIN, "", f"{len(found)} cases on {len(GATEWAYS)} gateways:", ""]
    lines += ["| group | cases |", "|---|---|"]
    lines += [f"| {kind} | {count} |" for kind, count in kinds.items()]
    listed = sum(bool(allowed_fields(case)) for case in found)
    lines += [
        "",
        f"{len(found) - listed} of them agree in everything; {listed} differ, or may differ, as listed here.",
        "",
    ]
    for side, title in _SIDES.items():
        entries = [entry for entry in ALLOWED if entry.side == side]
        if not entries:
            continue
        lines += [f"### {title}", "", "| difference | where | cases | reason |", "|---|---|---|---|"]
        for entry in entries:
            count = sum(entry.covers(case) for case in found)
            lines.append(f"| {entry.name} | {', '.join(entry.fields)} | {count} | {entry.reason} |")
        lines.append("")
    return "\n".join([*lines, _END])


def updated(page: str) -> str:
    """`page` with its generated part written again."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return before + table() + after


async def main() -> None:
    """Run everything, print size and result, write the page."""
    found, stack = cases(), Stack(GATEWAYS)
    begun = time.perf_counter()
    await stack.start()
    ready = time.perf_counter()
    unlisted, differing = [], 0
    for case in found.values():
        fields = set(differences(*await stack.run(case)))
        differing += bool(fields)
        if fields - allowed_fields(case.id):
            unlisted.append(f"{case.id}: {', '.join(sorted(fields - allowed_fields(case.id)))}")
    ended = time.perf_counter()
    await stack.stop()
    print(f"{len(found)} cases in {ended - begun:.1f} s ({ready - begun:.1f} s of it to configure and start)")
    print(f"{len(found) - differing} agree in everything, {differing} differ, {len(unlisted)} of them unlisted")
    print("\n".join(unlisted))
    page = Path(__file__).parents[2] / "docs" / "reference" / "envoy-parity.md"
    page.write_text(updated(page.read_text()))


if __name__ == "__main__":
    asyncio.run(main())
