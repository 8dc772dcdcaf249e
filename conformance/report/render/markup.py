"""Text that came from elsewhere, inside of Markdown: on one line, and without any markup."""

from __future__ import annotations

from urllib.parse import quote


def code(lines: str) -> list[str]:
    """A block of shell commands."""
    fence = "```"
    while fence in lines:
        fence += "`"
    return [f"{fence}sh", lines, fence]


def text(value: str) -> str:
    """Running text."""
    line = " ".join(value.split())
    return "".join(f"\\{one}" if one in "\\`*_[]<>|#&" else one for one in line)


def cell(value: str) -> str:
    """A cell of a table, also in code."""
    return " ".join(value.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def link(url: str) -> str:
    """A target of a link; empty for anything but web addresses and relative paths."""
    safe = url if url.startswith(("http://", "https://")) or ":" not in url else ""
    return quote(safe, safe="/:#?&=@%+~._-")
