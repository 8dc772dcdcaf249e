"""The step that keeps a connection to an EPP of which nothing is read."""

from __future__ import annotations

from pydantic import Field

from conformance.strict_yaml import FileModel


class UnreadConnectionStep(FileModel):
    """A further connection with one request on it, of which nothing is read until the scenario ends.

    The EPP may answer, wait, or end the stream or the connection: the request is not recorded, and not judged.
    """

    size: int = Field(500_000, gt=0, le=8 * 1024 * 1024, description="bytes of the request's body, which may come back")
