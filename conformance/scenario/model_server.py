"""The steps of scenarios for a model server: a request to its API, load, and scrapes of its metrics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from conformance.strict_yaml import FileModel

Api = Literal["completions", "chat", "models"]
API_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions", "models": "/v1/models"}
"""Where each API is, below the URL of the server."""


Until = Literal["queued", "one-runs", "kv-cache", "adapters"]
"""What load is raised for."""


class Ask(FileModel):
    """One request to the inference API, or several alike, one after the other."""

    api: Api = Field("completions", description="which API is asked")
    stream: bool = Field(False, description="the answer is to come as server-sent events")
    include_usage: bool = Field(False, description="with stream_options.include_usage")
    tokens: int | None = Field(16, ge=1, le=4096, description="the most tokens of the answer; null: it says none")
    prompt_words: int = Field(8, ge=1, le=100_000, description="words of the prompt")
    prompt: Literal["fresh", "same"] = Field("fresh", description="same: one prompt for all such steps of a run")
    model: Literal["known", "adapter"] = Field("known", description="adapter: the first that the profile names")
    wrong: Literal["", "not-json", "no-prompt", "unknown-model"] = Field(
        "", description="what is wrong with it, so that it must be refused"
    )
    repeat: int = Field(1, ge=1, le=100, description="how often it is sent")

    @model_validator(mode="after")
    def _streams(self) -> Ask:
        if self.include_usage and not self.stream:
            raise ValueError("`includeUsage` is for streamed answers: say `stream: true`")
        return self


class LoadStep(FileModel):
    """Load that is raised until it shows on the metrics, within the profile's limits, and then ends.

    It begins when the gauges are at rest, and it is over when they are again.
    """

    until: Until = Field(
        description="queued: requests wait; one-runs: a single request runs; kv-cache: the cache fills, under long "
        "prompts; adapters: each adapter of the profile has a request in flight"
    )
    end: Literal["finish", "abort"] = Field("finish", description="abort: what is in flight is broken off")


class ScrapeStep(FileModel):
    """The page of metrics is read."""

    times: int = Field(3, ge=1, le=1000, description="how often")
    gzip: bool = Field(True, description="the client takes gzip, as that of EPPs in Go does; false: it takes none")
