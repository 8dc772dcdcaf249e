"""The catalogue: every requirement once, with what it counts for in each version of the protocol.

    catalogue = Catalogue.load()
    for requirement in catalogue.for_version("1.0.0", "epp"): ...
    catalogue.get("EPP-SUB-2")        # UnknownNameError: did you mean 'EPP-SUB-02'?

The data are the YAML files beside this module: one per area, `catalogue.yaml` (version, areas, documents) and
`sentences.yaml` (digests of the documents' normative sentences and the requirements that say them).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

from conformance.errors import UnknownNameError, did_you_mean
from conformance.requirements.schema import (
    VERSIONS,
    AreaFile,
    CatalogueFile,
    Effect,
    Kind,
    Level,
    RequirementEntry,
    Role,
    SentenceFile,
)
from conformance.source_cache import kept
from conformance.strict_yaml import Document, FileError, FileModel, Problem, load_located
from conformance.validation import Loc


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One normative statement.

    `effects` has an entry for each version in which it applies. `statement` is ours, never the document's text;
    `section` says where the document speaks, `sentences` are the digests of its sentences by document. `observed` says
    how it is seen from outside, `reading` how an ambiguity is read, `why` how implementations come to break it,
    `recording` which recording of real Envoy it leans on. `untestable` and `pending` say why nothing tests it: it can't
    be, or is yet to come. `conditional`: the condition is the implementation's own choice, so that its not arising is
    neutral. `universal`: judged on every exchange of every scenario. `place` is where it is written, as file:line.
    """

    id: str
    aliases: tuple[str, ...]
    title: str
    area: str
    role: Role
    level: Level
    kind: Kind
    effects: Mapping[str, Effect]
    section: str
    statement: str
    sentences: Mapping[str, tuple[str, ...]]
    observed: str
    reading: str | None
    why: str | None
    recording: str | None
    untestable: str | None
    pending: str | None
    conditional: bool
    universal: bool
    place: str = field(default="", compare=False, repr=False)

    @property
    def since(self) -> str:
        """The first version in which it applies."""
        return next(iter(self.effects))

    @property
    def until(self) -> str | None:
        """The last version in which it applies; None if that is the newest."""
        last = next(reversed(list(self.effects)))
        return None if last == VERSIONS[-1] else last

    @property
    def testable(self) -> bool:
        """False if it can't be tested, or is not tested yet."""
        return self.untestable is None and self.pending is None

    def applies(self, version: str) -> bool:
        """Whether it is part of `version`."""
        return version in self.effects

    def counts(self, version: str) -> bool:
        """Whether a violation in `version` makes the result non-conformant."""
        return self.effects.get(version) == "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolDocument:
    """A protocol document: its name (the protocol version), title, date, where upstream has it, and its digest."""

    name: str
    title: str
    date: str
    source: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A normative sentence of one or more documents: digest and fingerprint, and a topic in our words."""

    topic: str
    digest: str
    fingerprint: str
    documents: tuple[str, ...]
    requirements: tuple[str, ...]
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """All requirements, in the order of the areas. `digest` is the SHA-256 of the catalogue's data."""

    version: str
    digest: str
    areas: Mapping[str, str]
    """The title of each area."""
    documents: Mapping[str, ProtocolDocument]
    requirements: Mapping[str, Requirement]
    sentences: tuple[Sentence, ...]
    aliases: Mapping[str, str] = field(repr=False)

    @classmethod
    def load(cls, folder: Traversable | None = None) -> Catalogue:
        """The catalogue that comes with the suite, or the one in `folder`. Raises FileError with every problem."""
        return _load(folder) if folder is not None else _built_in()

    def __iter__(self) -> Iterator[Requirement]:
        return iter(self.requirements.values())

    def __len__(self) -> int:
        return len(self.requirements)

    def __contains__(self, requirement_id: object) -> bool:
        return requirement_id in self.requirements or requirement_id in self.aliases

    def get(self, requirement_id: str) -> Requirement:
        """The requirement with this id or alias; else UnknownNameError with the nearest one."""
        found = self.requirements.get(self.aliases.get(requirement_id, requirement_id))
        if found is None:
            raise UnknownNameError("requirement", requirement_id, [*self.requirements, *self.aliases])
        return found

    def for_version(self, version: str, role: str | None = "epp") -> tuple[Requirement, ...]:
        """The requirements of a role (None: of all roles) in a version. Raises UnknownNameError."""
        if version not in VERSIONS:
            raise UnknownNameError("protocol version", version, VERSIONS)
        return tuple(r for r in self if r.applies(version) and role in (None, r.role))

    def effect(self, requirement_id: str, version: str) -> Effect | None:
        """What a violation of a requirement counts for in a version; None where it does not apply."""
        found = self.requirements.get(requirement_id) or self.get(requirement_id)
        return found.effects.get(version)

    def specification(self, version: str) -> ProtocolDocument:
        """The document of a version. Raises UnknownNameError."""
        try:
            return self.documents[version]
        except KeyError:
            raise UnknownNameError("protocol document", version, self.documents) from None


@functools.cache
def _built_in() -> Catalogue:
    folder = files(__package__)
    sources = sorted((one for one in folder.iterdir() if one.name.endswith(".yaml")), key=lambda one: one.name)
    return kept("catalogue", sources, lambda: _load(folder))


FileT = TypeVar("FileT", bound=FileModel)


class _Loader:
    """Reads the files of a folder and collects every problem of all of them."""

    def __init__(self, folder: Traversable) -> None:
        self.folder = folder
        self.problems: list[Problem] = []
        self.data: dict[str, Any] = {}
        self.requirements: dict[str, Requirement] = {}
        self.aliases: dict[str, str] = {}
        self.places: dict[str, Problem] = {}
        """Where each id and alias was first seen."""
        self.references: list[tuple[Document, Loc, str]] = []

    def read(self, name: str, model: type[FileT]) -> tuple[FileT, Document] | None:
        try:
            value, document = load_located(self.folder / name, model, name=f"requirements/{name}")
        except FileError as error:
            self.problems += error.problems
            return None
        self.data[name] = document.data
        return value, document

    def area(self, name: str, by_requirement: Mapping[str, Mapping[str, tuple[str, ...]]]) -> AreaFile | None:
        if (found := self.read(f"{name}.yaml", AreaFile)) is None:
            return None
        area, document = found
        if area.area != name:
            self.problems.append(document.problem(("area",), f"the file is called {name!r}"))
        for index, entry in enumerate(area.requirements):
            loc: Loc = ("requirements", index)
            self.name((*loc, "id"), entry.id, document)
            for position, alias in enumerate(entry.aliases):
                self.name((*loc, "aliases", position), alias, document)
                self.aliases[alias] = entry.id
            self.cross_references(entry, document, loc)
            effects = self.effects(entry, document, loc)
            place = f"{document.name}:{document.position((*loc, 'id'))[0]}"
            self.requirements[entry.id] = dataclasses.replace(
                _requirement(area, entry, effects, by_requirement.get(entry.id, {})), place=place
            )
        return area

    def name(self, loc: Loc, name: str, document: Document) -> None:
        here = document.problem(loc, f"{name!r} is here twice")
        first = self.places.setdefault(name, here)
        if first is not here:
            where = f"the first is at {first.file}:{first.line}:{first.column}"
            self.problems.append(document.problem(loc, here.message, where))

    def cross_references(self, entry: RequirementEntry, document: Document, loc: Loc) -> None:
        for key in ("statement", "observed", "reading", "why", "untestable", "pending"):
            for named in _ID.findall(getattr(entry, key) or ""):
                self.references.append((document, (*loc, key), named))

    def effects(self, entry: RequirementEntry, document: Document, loc: Loc) -> dict[str, Effect]:
        first, last = VERSIONS.index(entry.since), VERSIONS.index(entry.until or VERSIONS[-1])
        if last < first:
            message = f"until {entry.until} is before since {entry.since}"
            self.problems.append(document.problem((*loc, "until"), message, f"the order is {', '.join(VERSIONS)}"))
            return {entry.since: "info"}
        versions = VERSIONS[first : last + 1]
        if not isinstance(entry.effect, dict):
            return dict.fromkeys(versions, entry.effect)
        for version in entry.effect:
            if version not in versions:
                message = f"the requirement does not apply in {version}"
                hint = f"it applies in {', '.join(versions)}"
                self.problems.append(document.problem((*loc, "effect", version), message, hint, key=True))
        missing = [v for v in versions if v not in entry.effect]
        if missing:
            self.problems.append(document.problem((*loc, "effect"), f"no effect for {', '.join(missing)}"))
            return dict.fromkeys(versions, "info")
        return {v: entry.effect[v] for v in versions}

    def sentences(self, documents: Mapping[str, ProtocolDocument]) -> tuple[Sentence, ...]:
        if (found := self.read("sentences.yaml", SentenceFile)) is None:
            return ()
        file, document = found
        for index, entry in enumerate(file.sentences):
            loc: Loc = ("sentences", index)
            self.name((*loc, "digest"), entry.digest, document)
            for position, name in enumerate(entry.documents):
                if name not in documents:
                    place = (*loc, "documents", position)
                    hint = did_you_mean(name, documents)
                    self.problems.append(document.problem(place, f"there is no document {name!r}", hint))
            for position, named in enumerate(entry.requirements):
                self.references.append((document, (*loc, "requirements", position), named))
            if bool(entry.requirements) == (entry.reason is not None):
                message = "a sentence has either requirements that say it, or a reason why none does"
                self.problems.append(document.problem(loc, message))
        return tuple(
            Sentence(
                topic=entry.topic,
                digest=entry.digest,
                fingerprint=entry.fingerprint,
                documents=entry.documents,
                requirements=entry.requirements,
                reason=entry.reason,
            )
            for entry in file.sentences
        )

    def check_references(self) -> None:
        for document, loc, named in self.references:
            if named not in self.requirements:
                hint = did_you_mean(named, self.requirements)
                self.problems.append(document.problem(loc, f"there is no requirement {named!r}", hint))


def _load(folder: Traversable) -> Catalogue:
    loader = _Loader(folder)
    found = loader.read("catalogue.yaml", CatalogueFile)
    if found is None:
        raise FileError(loader.problems)
    head, head_document = found
    documents = {d.name: ProtocolDocument(**d.model_dump()) for d in head.documents}
    for version in VERSIONS:
        if version not in documents:
            loader.problems.append(head_document.problem(("documents",), f"there is no document for {version}"))
    sentences = loader.sentences(documents)
    by_requirement = _by_requirement(sentences)
    titles = {name: area.title for name in head.areas if (area := loader.area(name, by_requirement))}
    loader.check_references()
    if loader.problems:
        raise FileError(loader.problems)
    canonical = json.dumps(loader.data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Catalogue(
        version=head.version,
        digest=hashlib.sha256(canonical.encode()).hexdigest(),
        areas=titles,
        documents=documents,
        requirements=loader.requirements,
        sentences=sentences,
        aliases=loader.aliases,
    )


def _by_requirement(sentences: tuple[Sentence, ...]) -> dict[str, dict[str, tuple[str, ...]]]:
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for sentence in sentences:
        for named in sentence.requirements:
            for name in sentence.documents:
                by_document = found.setdefault(named, {})
                by_document[name] = (*by_document.get(name, ()), sentence.digest)
    return found


def _requirement(
    area: AreaFile, entry: RequirementEntry, effects: Mapping[str, Effect], sentences: Mapping[str, tuple[str, ...]]
) -> Requirement:
    return Requirement(
        id=entry.id,
        aliases=entry.aliases,
        title=entry.title,
        area=area.area,
        role=area.role,
        level=entry.level,
        kind=area.kind,
        effects=effects,
        section=entry.section or area.section,
        statement=entry.statement,
        sentences=sentences,
        observed=entry.observed,
        reading=entry.reading,
        why=entry.why,
        recording=entry.recording,
        untestable=entry.untestable,
        pending=None if entry.untestable else entry.pending or area.pending,
        conditional=entry.conditional,
        universal=entry.universal,
    )


_ID = re.compile(r"\b(?:ENV|(?:EPP|DP|MS|RAR)-[A-Z]+)-[0-9]{2}\b")
