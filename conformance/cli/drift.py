"""`epp-conformance drift`: has the text of the protocol moved away from the catalogue?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def drift(
    document: Annotated[
        Path, typer.Argument(metavar="FILE", help="A protocol document: upstream's README.md.", exists=True)
    ],
    version: Annotated[
        str, typer.Option("--as", metavar="VERSION", help="The document that the catalogue has it as.")
    ] = "next",
) -> None:
    """Compare the normative sentences of a protocol document with those that the catalogue knows.

    Names what is new, changed or gone. Exit codes: 0 if nothing has drifted, 1 if something has.
    """
    from conformance.cli.console import out
    from conformance.requirements.drift import compare
    from conformance.strict_yaml import read_text

    found = compare(read_text(document, str(document)), version)
    console = out()
    for new in found.new:
        console.print(f"new      line {new.line}: {new.text}")
    for change in found.changed:
        console.print(f"changed  line {change.found.line}: {change.found.text}")
        console.print(
            f"         was: {change.known.topic} ({', '.join(change.known.requirements) or 'no requirement'})"
        )
    for gone in found.gone:
        console.print(f"gone     {gone.topic} ({', '.join(gone.requirements) or 'no requirement'})")
    same = "the very text" if found.same_text else "another text"
    console.print(
        f"drift        {len(found.new)} new · {len(found.changed)} changed · {len(found.gone)} gone · "
        f"{found.known} known ({same} of {version})"
    )
    raise typer.Exit(1 if found.any else 0)
