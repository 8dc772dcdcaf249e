"""Text that came from elsewhere, as it may be shown: no character of it drives a terminal."""


def printable(text: str) -> str:
    """Control and format characters, lone surrogates and unusual blanks as escapes."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(one: str) -> str:
    return one if one.isprintable() else one.encode("unicode_escape").decode()
