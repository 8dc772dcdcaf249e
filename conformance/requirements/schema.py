"""What the catalogue's YAML files may hold, and the words they use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from conformance.strict_yaml import FileModel

Version = Literal["0.2.0", "0.3.0", "0.4.0", "1.0.0", "next"]
"""A version of the protocol. They are a matrix, not a ladder: later ones also forbid and drop. `next` is the text on
upstream's main that has no number yet."""

VERSIONS: tuple[Version, ...] = ("0.2.0", "0.3.0", "0.4.0", "1.0.0", "next")
"""All versions in the order of their publication."""

Role = Literal["epp", "data-plane", "model-server"]
Kind = Literal["protocol", "ext_proc"]
"""`protocol`: from a protocol document; `ext_proc`: from the contract of the service that carries it."""

Level = Literal["MUST", "MUST NOT", "SHOULD", "MAY", "ENVOY", "DERIVED", "INFO"]
"""The document's own word; or ENVOY: a rule of ext_proc; DERIVED: it follows from a MUST but is not written; INFO: is
only recorded."""

Effect = Literal["fail", "warn", "info"]
"""The most that a violation counts for. A judge may lower it where the entry's `reading` says so. Process death, a
stream that is never answered and a hang are always `fail`."""

RequirementId = Annotated[str, Field(pattern=r"^(?:ENV|(?:EPP|DP|MS|RAR)-[A-Z]+)-[0-9]{2}$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, Field(min_length=1)]


class RequirementEntry(FileModel):
    """One requirement as it stands in a file. Fields are explained at `catalogue.Requirement`."""

    id: RequirementId
    aliases: tuple[Text, ...] = ()
    title: Text
    level: Level
    since: Version = "0.2.0"
    until: Version | None = None
    effect: Effect | dict[Version, Effect]
    section: Text | None = None
    statement: Text
    observed: Text
    reading: Text | None = None
    why: Text | None = None
    recording: Text | None = None
    untestable: Text | None = None
    pending: Text | None = None
    conditional: bool = False
    universal: bool = False


class AreaFile(FileModel):
    """One area of the catalogue. `section` and `pending` hold for entries that don't have theirs."""

    area: Text
    title: Text
    role: Role
    kind: Kind
    section: Text
    pending: Text | None = None
    requirements: tuple[RequirementEntry, ...] = Field(min_length=1)


class DocumentEntry(FileModel):
    """One protocol document: `name` is the protocol version, or the document's own name where it has none."""

    name: Text
    title: Text
    date: Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    source: Text
    sha256: Digest


class CatalogueFile(FileModel):
    """The catalogue's own version, its areas in the order in which they are shown, and the documents it covers."""

    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    areas: tuple[Text, ...]
    documents: tuple[DocumentEntry, ...]


class SentenceEntry(FileModel):
    """A normative sentence, without its text. Either `requirements` say it, or `reason` says why none does."""

    topic: Text
    digest: Digest
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    documents: tuple[Text, ...] = Field(min_length=1)
    requirements: tuple[Text, ...] = ()
    reason: Text | None = None


class SentenceFile(FileModel):
    """Every normative sentence of every document."""

    sentences: tuple[SentenceEntry, ...]
