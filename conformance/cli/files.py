"""The one file that a command makes, where the user says."""

from pathlib import Path

from conformance.errors import UsageError


def write_file(path: Path, text: str, option: str = "") -> None:
    """Write a file, and the folders that it needs. Raises `UsageError` if that can't be; `option` named the file, or
    an argument did."""
    hint = f"give another with {option}" if option else "name another file"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        why = f"{path.parent} is a file" if isinstance(problem, FileExistsError) else problem.strerror
        raise UsageError(f"{path} can't be written: {why}", hint=hint) from None
