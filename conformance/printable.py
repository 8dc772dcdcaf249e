"""Text as it may be shown: of what came from elsewhere no character drives a terminal, and no line a CI system."""

import re

_ORDER = re.compile(
    r"^((?:[^\S\n]|\x1b\[[0-9;]*m)*:)(:)(?=[A-Za-z][\w-]*(?: [^\n]*)?::)"  # GitHub's; blanks before it change nothing
    r"|(#)(#)(?=(?:vso)?\[)",  # Azure's, and GitHub's of old: anywhere in a line
    re.MULTILINE,
)


def printable(text: str) -> str:
    """Control and format characters, lone surrogates and unusual blanks as escapes."""
    return text if text.isprintable() else "".join(map(_shown, text))


def without_orders(text: str) -> str:
    """Lines as they may stand in the log of a CI system, which takes `::error::…` and `##[error]…` as orders: to mask
    words, to close its ears to other orders, to add notes to the change. The second sign of one is an escape then."""
    return _ORDER.sub(lambda found: f"{found[1] or found[3]}\\x{ord(found[2] or found[4]):02x}", text)


def quoted(text: str) -> str:
    """Each line of what a program printed behind a bar: none can be taken for one of the suite's own."""
    return "\n".join(f"| {line}" for line in text.splitlines())


def plural(number: int, one: str, many: str = "") -> str:
    """`1 blocker`, `2 blockers`; `many` is what more than one are called, if that is not `one` and an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def _shown(one: str) -> str:
    return one if one.isprintable() else one.encode("unicode_escape").decode()
