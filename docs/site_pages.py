"""What the site of `mkdocs.yml` has: docs/, and what of the rest of the repository is linked to, with links adapted.

MkDocs calls the functions `on_…`. A linked Markdown file becomes a page, another file a page that shows its text.
So the Markdown is the only copy, and its links work at the repository's host and on the site.
Each requirement has a page with what `epp-conformance explain` says, which the search finds by its id.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

from conformance.cli.explain import requirement_text
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import load

ROOT = Path(__file__).parents[1]
SECTIONS = {
    "Tutorials": "tutorial",
    "How-to": "how-to",
    "Reference": "reference",
    "Explanation": "explanation",
    "Decisions": "decisions",
    "Repository": "repository",
}
_FENCE_OR_LINK = re.compile(
    r"^(?P<fence>`{3,})(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=fence)$|(?P<before>\]\(|^\[[^\]\n]+\]: )(?P<target>[^)\s]+)",
    re.DOTALL | re.MULTILINE,
)


def on_files(files: Files, config: Any) -> Files:
    """Add what docs/ links to, directly or through such a page, and derive the menu from the folders."""
    waiting = [f"docs/{file.src_uri}" for file in files if file.src_uri.endswith(".md")]
    known = set(waiting)
    while waiting:
        page = waiting.pop(0)
        if not page.endswith(".md"):
            continue
        for target in _targets(page, (ROOT / page).read_text(encoding="utf-8")):
            if target not in known:
                known.add(target)
                waiting.append(target)
                if not target.startswith("docs/"):
                    files.append(_file(target, config))
    uris = sorted(file.src_uri for file in files if file.src_uri.endswith(".md"))
    config.nav = [
        {"Home": "README.md"},
        *({title: _menu(uris, folder)} for title, folder in SECTIONS.items()),
    ]
    for uri, text in _requirements():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page's text with its links as they are on the site, and blocks of code with the language alone."""
    path = _path(page.file.src_uri)

    def adapted(found: re.Match[str]) -> str:
        if found["fence"]:
            language = found["info"].split(" ")[0]
            return f"{found['fence']}{language}\n{found['code']}{found['fence']}"
        target, hash_, fragment = found["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        folder = posixpath.dirname(page.file.src_uri)
        uri = posixpath.relpath(_uri(_resolved(path, target)), folder or ".")
        return f"{found['before']}{uri}{hash_}{fragment}"

    return _FENCE_OR_LINK.sub(adapted, markdown)


def _requirements() -> Iterator[tuple[str, str]]:
    """A page for each requirement."""
    catalogue = Catalogue.load()
    instances = load(catalogue)
    for one in catalogue.requirements.values():
        text = f"# {one.id}: {one.title}\n\n{one.statement}\n\n```text\n{requirement_text(one, instances)}\n```\n"
        yield f"requirement/{one.id}.md", text


def _menu(uris: list[str], folder: str) -> list[str]:
    """The pages of a folder, its README first."""
    index = f"{folder}/README.md"
    return sorted((uri for uri in uris if uri.startswith(f"{folder}/")), key=lambda uri: (uri != index, uri))


def _targets(page: str, markdown: str) -> Iterator[str]:
    """The files of the repository that a page links to."""
    for found in _FENCE_OR_LINK.finditer(markdown):
        target = (found["target"] or "").partition("#")[0]
        if target and "://" not in target and not target.startswith("mailto:"):
            yield _resolved(page, target)


def _resolved(page: str, target: str) -> str:
    """The path in the repository that a link of `page` leads to; of a folder with a README, that."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    return f"{path}/README.md" if (ROOT / path / "README.md").is_file() else path


def _copied(path: str) -> bool:
    """Whether a file goes to the site as it is."""
    return PurePosixPath(path).suffix in (".html", ".svg", ".png")


def _uri(path: str) -> str:
    """Where the site's source has a path of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    shown = path.lstrip(".")  # MkDocs leaves files with a leading dot out
    return f"repository/{shown}" if path.endswith(".md") or _copied(path) else f"repository/{shown}.md"


def _path(uri: str) -> str:
    """The path in the repository of a page of the site."""
    if not uri.startswith("repository/"):
        return f"docs/{uri}"
    path = uri.removeprefix("repository/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def _file(path: str, config: Any) -> File:
    """A file outside docs/ as MkDocs takes it; one that does not exist is left to MkDocs' own check of links."""
    source = ROOT / path
    if path.endswith(".md") or _copied(path):
        return File.generated(config, _uri(path), abs_src_path=str(source))
    if source.is_dir():
        return File.generated(
            config, _uri(path), content=_block(path, "\n".join(sorted(one.name for one in source.iterdir())))
        )
    text = source.read_text(encoding="utf-8")
    language = {".yaml": "yaml", ".yml": "yaml", ".sh": "sh"}.get(source.suffix, "text")
    return File.generated(config, _uri(path), content=_block(path, text, language))


def _block(path: str, text: str, language: str = "text") -> str:
    return f"# {path}\n\n````{language}\n{text.rstrip()}\n````\n"
