"""Pages in headless Chromium: what they are like after they were opened."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path

import axe_core_python
from programs import CHROMIUM

AXE = Path(axe_core_python.__file__).with_name("axe.min.js")

SCHEMES = {"light": (), "dark": ("--blink-settings=preferredColorScheme=0",)}
"""Flags of Chromium by the colours that a reader prefers."""


def browse(page: str, folder: Path, *flags: str, script: str = "") -> str:
    """The page's document after it was opened, with `script` in it."""
    if script:
        page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
        page = page.replace("</body>", f"<script>{script}</script></body>")
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
        f"--user-data-dir={folder / 'browser'}", "--virtual-time-budget=60000", *flags, "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=110).stdout


def answer(document: str) -> object:
    found = re.search(r'<pre id="answer">(.*?)</pre>', document, re.DOTALL)
    assert found, document[-2000:]
    return json.loads(html.unescape(found[1]))


TELL = (
    "const p = document.createElement('pre'); p.id = 'answer';"
    "p.textContent = JSON.stringify(%s); document.body.append(p)"
)
OPEN = "for (const one of document.querySelectorAll('details')) one.open = true;"


def barriers(page: str, folder: Path, *flags: str) -> object:
    """The rules of accessibility that the page breaks with everything opened, each with where."""
    tell = TELL % "r.violations.map((v) => [v.id, v.nodes.map((n) => n.html)])"
    script = AXE.read_text().replace("</script", "<\\/script") + f";{OPEN} axe.run().then((r) => {{ {tell} }})"
    return answer(browse(page, folder, *flags, script=script))


PRINTED = {
    "@media print": "@media all",
    "@media screen": "@media not all",
    "</head>": "<style>* { overflow: visible !important }</style></head>",  # a sheet can't be scrolled
}
"""What makes a page on the screen one on paper."""


def widths(page: str, folder: Path, width: int, *, printed: bool = False) -> object:
    """How wide the page is, and how much of that is seen, in a window or on a sheet of `width` pixels."""
    for screen, sheet in PRINTED.items() if printed else ():
        page = page.replace(screen, sheet)
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)  # which knows only the style as it was
    page = re.sub(r"<script.*?</script>", "", page.replace("<details", "<details open"), flags=re.DOTALL)
    tell = TELL % "[d.scrollWidth, d.clientWidth]"
    script = f"f.onload = () => {{ const d = f.contentDocument.documentElement; {tell} }}"
    framed = f'<body><iframe id="f" width="{width}" height="900" srcdoc="{html.escape(page)}"></iframe></body>'
    return answer(browse(framed, folder, script=script))
