"""The blocks of `report.json` that describe the run: suite, catalogue, document, target, surroundings, evidence."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import Field

from conformance.printable import plural
from conformance.requirements.schema import Role
from conformance.strict_yaml import FileModel

_INTERPRETER = re.compile(r"\{python\}|python[0-9.]*|pypy[0-9.]*|node|java|ruby|deno|bun|sh|bash|env|uv|npx")
"""Programs whose name says nothing of what they run."""

_WITH_A_VALUE = frozenset(
    {"-cp", "-classpath", "--class-path", "-p", "--module-path", "-r", "--require", "--import", "-W", "-X"}
)
"""Options of interpreters whose value is the next word."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256, in hex")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class Block(FileModel):
    """Base of the parts of a report: frozen, unknown keys refused, camelCase."""


class Suite(Block):
    """The suite that made the report."""

    name: str = Field("epp-conformance", description="its distribution")
    version: str = Field(description="its version")
    python: str = Field(description="the Python that it ran on")


class CatalogueBlock(Block):
    """The requirements that were judged."""

    version: str = Field(description="the catalogue's own semantic version")
    digest: Digest = Field(description="of the catalogue's data")
    scenarios: Digest | None = Field(None, description="of the scenarios that come with the suite")


class Specification(Block):
    """The protocol document."""

    name: str = Field("endpoint-picker-protocol", description="its name")
    version: str = Field(description="the protocol version; `next`: upstream's text without a number yet")
    title: str = Field(description="its title")
    date: str = Field(description="when it was published, or read")
    source: str = Field(description="where upstream has it")
    digest: Digest = Field(description="of its text")


class ImplementationBlock(Block):
    """Who made the target, in the words of upstream's conformance reports."""

    organization: str = Field(description="the organization behind it")
    project: str = Field(description="what it is called")
    url: str = Field(description="where it is found")
    version: str = Field(description="its version")
    contact: tuple[str, ...] = Field(description="whom to ask about this report")
    role: Role = Field("epp", description="its part in the protocol")


class Subject(Block):
    """How the target was run."""

    kind: Literal["command", "image", "address"] = Field(
        description="a program or an image that the suite started, or an address where it ran already"
    )
    name: str = Field(description="the program, the image, or the address")
    digest: Digest | None = Field(description="of the image, or of the program's file; null where it is not known")
    flags: tuple[str, ...] = Field(description="its own arguments, with the placeholders of the profile unresolved")
    env: tuple[str, ...] = Field(description="the names, not the values, of the environment variables given to it")
    address: str = Field(description="where it listened, with the placeholders of the profile unresolved")

    @property
    def short(self) -> str:
        """A name for it: a program without its folders, and of an interpreter what it runs."""
        if self.kind != "command":
            return self.name
        program = PurePath(self.name).name
        if not _INTERPRETER.fullmatch(program):
            return program
        if "-m" in self.flags[:-1]:
            return self.flags[self.flags.index("-m") + 1]
        words = iter(self.flags)
        for word in words:
            if word in _WITH_A_VALUE:
                next(words, None)
            elif not word.startswith("-") and word != "run":  # as of `deno run epp.ts`
                return PurePath(word).name
        return program


class Platform(Block):
    """The machine that ran the suite."""

    system: str = Field(description="its operating system")
    machine: str = Field(description="its architecture")
    release: str = Field(description="the release of its kernel")


class Topology(Block):
    """What stood around the target."""

    discovery: Literal["kubernetes", "file", "fixed"] = Field(description="how the target learnt its pool")
    scrapes: bool = Field(description="whether it was expected to read the pods' metrics")
    tls: Literal["plaintext", "unverified", "verified"] = Field(description="how it was spoken to")
    connections: int = Field(description="over how many connections")
    body_modes: tuple[str, ...] = Field(description="the request body modes driven; the first is the main one")
    data_plane: str = Field("fake", description="what carried the scenarios: fake, or envoy with its variant")

    def __str__(self) -> str:
        modes = ", ".join(self.body_modes)
        return f"endpoints by {self.discovery}, {self.tls} connection, body modes {modes}, data plane {self.data_plane}"


class GatewayTopology(Block):
    """What stood around a gateway."""

    pools: int = Field(description="how many pools it had, each with its own EPP")
    tls: tuple[Literal["plaintext", "self-signed"], ...] = Field(description="how it spoke to the EPP of each")

    def __str__(self) -> str:
        pools = f"{self.pools} pool{'' if self.pools == 1 else 's'}"
        return f"{pools}, connection to the EPP: {', '.join(self.tls)}"


class ModelServerTopology(Block):
    """What is known of the surroundings of a model server: nothing stands between it and the suite."""

    concurrency: int = Field(ge=1, le=1024, description="requests at a time that the suite sent, at most")
    tokens: int = Field(ge=1, le=8192, description="tokens that a request of the suite's load asked for, at most")
    prompt_words: int = Field(ge=1, le=100_000, description="words of a long prompt")

    def __str__(self) -> str:
        return (
            f"load of at most {plural(self.concurrency, 'request')} at a time, of {plural(self.tokens, 'token')}, "
            f"with prompts of up to {self.prompt_words} words"
        )


class Environment(Block):
    """What a second run needs to be the same."""

    seed: int = Field(description="what prompts, and whatever else is drawn, come from: `--seed`")
    platform: Platform = Field(description="the machine that ran the suite")
    topology: Topology | GatewayTopology | ModelServerTopology = Field(description="what stood around the target")


class EvidenceFile(Block):
    """The file of evidence; digest and size are of its uncompressed lines, so that it may be packed again."""

    file: str = Field(description="its name, beside the report")
    episodes: int = Field(description="how many lines it has, one for each judged episode")
    bytes: int = Field(description="size of its lines, uncompressed")
    sha256: Sha256


class AnomalyRow(Block):
    """Something worth knowing that is no finding."""

    code: str = Field(description="what kind of thing it is, for programs")
    text: str = Field(description="what it is")
    scenario: str | None = Field(description="the scenario that it happened in, if it was one")


class Redaction(Block):
    """A secret that was replaced in all that is kept."""

    kind: str = Field(description="what it was: a header, an environment variable, …")
    name: str = Field(description="the name that it had there")
    count: int = Field(description="in how many places it was replaced")


class Waiver(Block):
    """A known failure that the user does not want to fail their build for. It never makes a version conformant."""

    pattern: str = Field(description="the scenarios that it is for: an id or a glob")
    reason: str = Field(description="why the failure is accepted")
    issue: str = Field("", description="where it is being worked on")
    owner: str = Field("", description="who answers for it")
    expires: str | None = Field(None, description="the last day on which it holds")
    matched: tuple[str, ...] = Field((), description="the failures that it waived")
    problem: str = Field(
        "", description="what is wrong with it: it matches nothing, has expired, or what it waives passes"
    )
