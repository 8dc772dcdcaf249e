"""A conversation as a sequence diagram of client, data plane, EPP and model server: as SVG, and as Mermaid.

Both are drawn from the lines of `transcript`, so that they say what the table beside them says. The SVG stands alone,
light and dark; in the report the page's style sheet has the same classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from conformance.printable import printable
from conformance.report.render.messages import cut, fitting, width_of
from conformance.report.render.transcript import CLIENT, MODEL_SERVER, Line

DATA_PLANE, EPP = "data-plane", "epp"
LANES = {CLIENT: "Client", DATA_PLANE: "Data plane", EPP: "EPP", MODEL_SERVER: "Model server"}

TO_CLIENT = "HTTP response"
UPSTREAM = "upstream request"

WIDTH, HEAD, ROW, FOOT = 960, 44, 34, 12
LEFT, APART = 76, 262
LETTER = 6.7
"""The width of a letter of a label, in units of the drawing."""

STYLE = """
svg { background: #fff; color: #1b1f24; --line: #8a929c; --soft: #57606a; --bad: #b3241c; --mark: #fff1c2; }
@media (prefers-color-scheme: dark) {
  svg { background: #14171b; color: #e6e9ed; --line: #7a838f; --soft: #9aa4b0; --bad: #ff8a80; --mark: #4a3d10; }
}
.lane { stroke: var(--line); stroke-dasharray: 2 4; }
.head, .label, .number { font: 11px ui-monospace, "DejaVu Sans Mono", Menlo, monospace; fill: currentColor; }
.head { font-weight: 700; font-size: 13px; text-anchor: middle; }
.number, .note { fill: var(--soft); }
.arrow { stroke: currentColor; stroke-width: 1.4; fill: none; }
.tip { fill: currentColor; }
.back { fill: none; }
.marked .back { fill: var(--mark); }
.marked .arrow { stroke: var(--bad); stroke-width: 2.2; }
.marked .tip, .marked .label { fill: var(--bad); }
.marked .label { font-weight: 700; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagramStep:
    """One row: an arrow from a lane to another or, with neither, a note across all of them."""

    seq: int
    text: str
    source: str = ""
    target: str = ""
    marked: bool = False
    gap: bool = False


def steps(lines: Sequence[Line]) -> tuple[DiagramStep, ...]:
    """The rows of the diagram, one for each line."""
    return tuple(_step(line) for line in lines)


def _step(line: Line) -> DiagramStep:
    source, target = _way(line)
    what = line.what if source or not line.who else f"{line.who}: {line.what}"
    text = f"{what}: {line.summary}" if line.summary else what
    return DiagramStep(
        seq=line.seq, text=printable(text), source=source, target=target, marked=line.marked, gap=not line.who
    )


def _way(line: Line) -> tuple[str, str]:
    if line.who == CLIENT:
        return (DATA_PLANE, CLIENT) if line.what == TO_CLIENT else (CLIENT, DATA_PLANE)
    if line.who == DATA_PLANE:
        return (DATA_PLANE, MODEL_SERVER) if line.what == UPSTREAM else (DATA_PLANE, EPP)
    if line.who in (EPP, MODEL_SERVER):
        return line.who, DATA_PLANE
    return "", ""


# -- SVG ---------------------------------------------------------------------------------------------------------------


def svg(lines: Sequence[Line], *, alone: bool = True) -> str:
    """The drawing. `alone`: with its style sheet and the size that it needs, for a file."""
    shown = steps(lines)
    height = HEAD + ROW * len(shown) + FOOT
    style = f"<style>{STYLE}</style>" if alone else ""
    size = f' width="{WIDTH}" height="{height}"' if alone else ""
    title = f"Sequence diagram, {len(shown)} rows: {', '.join(LANES.values())}"
    lanes = "".join(
        f'<text class="head" x="{_x(name)}" y="22">{label}</text>'
        f'<line class="lane" x1="{_x(name)}" x2="{_x(name)}" y1="30" y2="{height - FOOT}"/>'
        for name, label in LANES.items()
    )
    rows = "".join(_row(step, HEAD + ROW * number) for number, step in enumerate(shown))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="sequence" role="img" aria-label="{title}" '
        f'viewBox="0 0 {WIDTH} {height}"{size}>{style}{lanes}{rows}</svg>'
    )


def _x(lane: str) -> int:
    return LEFT + APART * list(LANES).index(lane)


def _row(step: DiagramStep, top: int) -> str:
    start = min(_x(step.source), _x(step.target)) if step.source else 8
    room = int((WIDTH - start - 12) / LETTER)
    kind = "label" if step.source else "label note"
    flag = "◀ here " if step.marked else ""
    text = escape(flag + fitting(step.text, room - width_of(flag)))
    body = f'<text class="{kind}" x="{start + 8}" y="{top + 13}">{text}</text>'
    if step.source:
        body += _arrow(_x(step.source), _x(step.target), top + 21)
    number = f'<text class="number" x="4" y="{top + 26}">#{step.seq}</text>' if step.source else ""
    marked = ' class="marked"' if step.marked else ""
    back = f'<rect class="back" x="0" y="{top}" width="{WIDTH}" height="{ROW - 2}"/>'
    return f"<g{marked}>{back}{number}{body}</g>"


def _arrow(start: int, end: int, y: int) -> str:
    side = 8 if end < start else -8
    return (
        f'<line class="arrow" x1="{start}" x2="{end + side // 2}" y1="{y}" y2="{y}"/>'
        f'<path class="tip" d="M{end} {y}l{side} -4v8z"/>'
    )


# -- Mermaid -----------------------------------------------------------------------------------------------------------

_NAMES = {CLIENT: "C", DATA_PLANE: "D", EPP: "E", MODEL_SERVER: "M"}
LETTERS = 160


def mermaid(lines: Sequence[Line]) -> str:
    """The diagram as Mermaid, which GitHub and GitLab draw in issues; the message at fault is in a red frame."""
    participants = [f"  participant {_NAMES[name]} as {label}" for name, label in LANES.items()]
    return "\n".join(["sequenceDiagram", *participants, *(row for one in steps(lines) for row in _rows(one))]) + "\n"


def _rows(step: DiagramStep) -> Iterator[str]:
    text = _plain(cut(step.text, LETTERS))
    if step.marked:
        yield "  rect rgba(200, 40, 30, 0.25)"
    if step.source:
        here = "HERE " if step.marked else ""
        yield f"  {_NAMES[step.source]}->>{_NAMES[step.target]}: {here}{text}"
    else:
        yield f"  Note over C,M: {text}"
    if step.marked:
        yield "  end"


def _plain(text: str) -> str:
    """Text that means nothing to Mermaid: `#` begins an entity there, `;` ends a line, and `$$` begins a formula."""
    return "".join(f"#{ord(one)};" if one in '#;<>&"%{}$' else " " if one == "\n" else one for one in text)
