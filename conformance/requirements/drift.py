"""Drift between the catalogue and a protocol document, and how much of a document the catalogue covers.

The catalogue keeps no text of a document, only the SHA-256 and a similarity fingerprint of each normative
sentence. `compare` extracts the sentences of a document and names what is new, changed or gone; `coverage` says which
requirements stand for the sentences of a document; `render` makes `sentences.yaml`, for its maintainers.

A sentence is normative if it has a requirement word, or is an item under a sentence that announces a list and has one,
or is a row of a table in a section that has one. Words that only may be normative are included, so that nothing slips
through; what is no requirement has a reason in `sentences.yaml`.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from conformance.requirements.catalogue import Catalogue, ProtocolDocument, Sentence

SIMILAR = 13
"""Two sentences are one that was changed if at least this many of the 32 parts of their fingerprints are equal.
Sentences that have nothing in common share two on average; those that share turns of phrase up to eleven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A normative sentence of a document: its text without markup, its section, and the line where its block begins."""

    text: str
    section: str
    line: int

    @property
    def digest(self) -> str:
        """SHA-256 of the normalised text."""
        return hashlib.sha256(normalise(self.text).encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """128 bits in hex, of which similar sentences share many (minimal hashes of pairs of words)."""
        return _fingerprint(normalise(self.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceChange:
    """A sentence that is in the document in another form than the catalogue knows."""

    found: Found
    known: Sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What differs between a document and the catalogue's record of it. `same_text`: not one character does."""

    specification: ProtocolDocument
    same_text: bool
    new: tuple[Found, ...]
    changed: tuple[SentenceChange, ...]
    gone: tuple[Sentence, ...]
    known: int

    @property
    def any(self) -> bool:
        """Whether a normative sentence is new, changed or gone."""
        return bool(self.new or self.changed or self.gone)

    @property
    def requirements(self) -> tuple[str, ...]:
        """The requirements to look at again: those of the sentences that changed or are gone."""
        touched = [*(change.known for change in self.changed), *self.gone]
        return tuple(dict.fromkeys(named for sentence in touched for named in sentence.requirements))


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The normative sentences of a document, by what becomes of them. A sentence is in exactly one of the groups."""

    specification: ProtocolDocument
    tested: tuple[Sentence, ...]
    """At least one of its requirements is tested."""
    pending: tuple[Sentence, ...]
    """It has testable requirements; none of them is tested yet."""
    untestable: tuple[Sentence, ...]
    """None of its requirements can be tested; each says why."""
    no_requirement: tuple[Sentence, ...]
    """It requires nothing; its `reason` says why."""

    @property
    def normative(self) -> int:
        """The number of sentences that require something."""
        return len(self.tested) + len(self.pending) + len(self.untestable)


def compare(text: str, document: str, catalogue: Catalogue | None = None) -> Drift:
    """What is new, changed or gone in `text`, a protocol document, against what the catalogue knows of `document`.

    `document` is a protocol version, or the name of a document in the catalogue. Raises UnknownNameError.
    """
    catalogue = catalogue or Catalogue.load()
    specification = catalogue.specification(document)
    known = {s.digest: s for s in catalogue.sentences if document in s.documents}
    found = {sentence.digest: sentence for sentence in sentences(text)}
    new = {digest: sentence for digest, sentence in found.items() if digest not in known}
    gone = {digest: sentence for digest, sentence in known.items() if digest not in found}
    pairs = sorted(
        (-shared, a, b)
        for a, sentence in new.items()
        for b, old in gone.items()
        if (shared := _shared(sentence.fingerprint, old.fingerprint)) >= SIMILAR
    )
    changed: list[SentenceChange] = []
    for _, a, b in pairs:
        if a in new and b in gone:
            changed.append(SentenceChange(found=new.pop(a), known=gone.pop(b)))
    return Drift(
        specification=specification,
        same_text=text_digest(text) == specification.sha256,
        new=tuple(new.values()),
        changed=tuple(changed),
        gone=tuple(gone.values()),
        known=len(known),
    )


def coverage(document: str, tested: Collection[str], catalogue: Catalogue | None = None) -> Coverage:
    """How much of a document is covered, where `tested` are the ids of the requirements that something tests."""
    catalogue = catalogue or Catalogue.load()
    groups: dict[str, list[Sentence]] = {"tested": [], "pending": [], "untestable": [], "no_requirement": []}
    specification = catalogue.specification(document)
    for sentence in catalogue.sentences:
        if document in sentence.documents:
            groups[_group(sentence, tested, catalogue)].append(sentence)
    return Coverage(specification=specification, **{name: tuple(group) for name, group in groups.items()})


def _group(sentence: Sentence, tested: Collection[str], catalogue: Catalogue) -> str:
    if not sentence.requirements:
        return "no_requirement"
    if any(named in tested for named in sentence.requirements):
        return "tested"
    untestable = all(catalogue.get(named).untestable for named in sentence.requirements)
    return "untestable" if untestable else "pending"


def text_digest(text: str) -> str:
    """SHA-256 of a whole document, with LF line ends, without blanks at line ends and empty lines around it."""
    lines = (line.rstrip() for line in text.removeprefix("\ufeff").splitlines())
    return hashlib.sha256("\n".join(lines).strip("\n").encode()).hexdigest()


# -- from a document to its normative sentences ------------------------------------------------------------------------

_BINDING = re.compile(
    r"\b(?-i:MAY|CAN|RECOMMENDED)\b"  # RFC 2119's words that are everyday words in small letters
    r"|\b(?:must|shall|should|will|required|optional|unpredictable|returns|determines|verifies|exposes|implements|scoped"
    r"|separated|does not (?:otherwise )?(?:depend|define))\b",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_ITEM = re.compile(r"(\s*)(?:[-*+•]|[0-9]+[.)])\s+(.*)$")
_FENCE = re.compile(r"\s*(?:```|~~~)")
_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"']?\s+(?=[A-Z`\"'(\[*])(?<!e\.g\.\s)(?<!i\.e\.\s)")


@dataclass(slots=True)
class _Block:
    """A paragraph, a list item or a row of a table. `depth` is None for paragraphs, and the indent for items."""

    text: str
    line: int
    section: str
    depth: int | None = None
    is_row: bool = False


def sentences(text: str) -> tuple[Found, ...]:
    """The normative sentences of a document, in order, each once; from Markdown or from its plain rendering."""
    found: dict[str, Found] = {}
    announced: list[tuple[int, bool]] = []  # (indent, binding) of the sentences that announce the lists we are in
    binding_sections: set[str] = set()
    section = ""
    for block in _blocks(text):
        parts = _SENTENCE_END.split(_plain(block.text))
        if block.depth is None or block.section != section:
            announced, section = [], block.section
        else:
            announced = [(depth, binding) for depth, binding in announced if depth < block.depth]
        inherited = any(binding for _, binding in announced) or (block.is_row and block.section in binding_sections)
        for part in filter(None, map(str.strip, parts)):
            if inherited or _BINDING.search(part):
                sentence = Found(text=part, section=block.section, line=block.line)
                found.setdefault(sentence.digest, sentence)
                binding_sections.add(block.section)
        last = parts[-1].strip() if parts else ""
        if last.endswith(":"):
            announced.append((-1 if block.depth is None else block.depth, bool(inherited or _BINDING.search(last))))
    return tuple(found.values())


def normalise(text: str) -> str:
    """A sentence without what does not change its meaning: markup, case, blanks, kinds of quotes, final punctuation."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    folded = folded.translate(str.maketrans("‘’“”", "''\"\"", "`*<>"))
    return " ".join(folded.split()).rstrip(" .:;,")


def _blocks(text: str) -> Iterator[_Block]:
    """The paragraphs, items and rows of a document, each joined to one line; code is left out."""
    section, fenced = "", False
    block: _Block | None = None
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.expandtabs(4).rstrip()
        if _FENCE.match(line):
            fenced = not fenced
            line = ""
        elif fenced:
            continue
        heading, item = _HEADING.match(line), _ITEM.match(line)
        starts = not line or heading or item or line.lstrip().startswith("|")
        if starts and block is not None:
            announces = block.text.endswith(":")
            yield block
            block = None
            # A blank line ends a paragraph, yet the list it announces may follow.
            if announces and not line:
                continue
        if heading:
            section = _plain(heading.group(2))
        elif item:
            block = _Block(text=item.group(2), line=number, section=section, depth=len(item.group(1)))
        elif line.lstrip().startswith("|"):
            if set(line) - set("|-: "):
                yield _Block(text=line.strip(" |"), line=number, section=section, depth=0, is_row=True)
        elif line:
            if block is None:
                block = _Block(text=line.strip(), line=number, section=section)
            else:
                block.text += " " + line.strip()
    if block is not None:
        yield block


def _plain(text: str) -> str:
    """Text without links, images, emphasis and code marks."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[`*]|(?<!\w)_|_(?!\w)", "", text).split())


# -- similarity --------------------------------------------------------------------------------------------------------


def _fingerprint(text: str) -> str:
    """32 minimal hashes of the sentence's pairs of words, four bits each: equal ones estimate how much two share."""
    words = re.findall(r"[\w.-]+", text)
    pairs = {f"{a} {b}" for a, b in itertools.pairwise(words)} or {" ".join(words)}
    digests = [
        hashlib.blake2b(pair.encode(), digest_size=64, salt=b"a").digest()
        + hashlib.blake2b(pair.encode(), digest_size=64, salt=b"b").digest()
        for pair in pairs
    ]
    return "".join(f"{min(digest[at : at + 4] for digest in digests)[3] & 15:x}" for at in range(0, 128, 4))


def _shared(a: str, b: str) -> int:
    """How many of the 32 parts of two fingerprints are equal."""
    return sum(x == y for x, y in zip(a, b, strict=True))


# -- maintenance -------------------------------------------------------------------------------------------------------


def render(documents: Mapping[str, str], known: Iterable[Sentence] = ()) -> str:
    """`sentences.yaml` for these documents (name: text).

    What `known` says of a sentence is kept; a sentence that it does not have gets an empty topic, and neither
    requirements nor reason, so that the catalogue does not load until they are written.
    """
    by_digest = {sentence.digest: sentence for sentence in known}
    found: dict[str, tuple[Found, list[str]]] = {}
    for name, text in documents.items():
        for sentence in sentences(text):
            found.setdefault(sentence.digest, (sentence, []))[1].append(name)
    lines = [_HEADER]
    for digest, (sentence, names) in found.items():
        old = by_digest.get(digest)
        lines.append(f"  - topic: {_quoted(old.topic if old else '')}")
        lines.append(f'    digest: "{digest}"')
        lines.append(f'    fingerprint: "{sentence.fingerprint}"')
        lines.append(f"    documents: [{', '.join(names)}]")
        if old and old.requirements:
            lines.append(f"    requirements: [{', '.join(old.requirements)}]")
        elif old and old.reason:
            lines.append(f"    reason: {_quoted(old.reason)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_HEADER = """\
# Every normative sentence of the protocol documents: its digest, and the requirements that say it or the reason why
# none does. Topics are our words; no text of a document is kept. Written by drift.render, completed by hand.
sentences:"""
