"""What the API server says when it refuses: Kubernetes `Status` documents, and the exceptions that become them.

KubernetesEmulatorError      trouble of the emulator's user (unknown kind, not started)
ApiError                     an answer to an HTTP client: code, reason, message, details
ExpiredError                 the history asked for is gone (410), for lists and watches
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["ApiError", "ExpiredError", "KubernetesEmulatorError"]


class KubernetesEmulatorError(Exception):
    """The emulator was asked for something it can't do; the message says what, and what to do about it."""


class ApiError(Exception):
    """A refusal that an HTTP client reads as a Kubernetes `Status`.

    `code` is the HTTP status, `reason` the machine-readable word (NotFound, Conflict, …), `details` the optional
    `Status.details` object.
    """

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> dict[str, Any]:
        """Return the `Status` object (v1) of this refusal."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = self.details
        return status

    def body(self) -> bytes:
        """Return the `Status` as JSON."""
        return json.dumps(self.status()).encode()

    # The refusals that are made in more than one place; the words are those of a real API server, since clients match
    # them.

    @classmethod
    def bad_request(cls, message: str) -> ApiError:
        """400: the request can't be understood."""
        return cls(400, "BadRequest", message)

    @classmethod
    def no_such_path(cls, path: str) -> ApiError:
        """404: no resource type is served under this path."""
        return cls(404, "NotFound", f"the server could not find the requested resource ({path})")

    @classmethod
    def not_found(cls, resource: str, name: str) -> ApiError:
        """404: the resource type is served, the object does not exist."""
        plural, _, group = resource.partition(".")
        return cls(404, "NotFound", f'{resource} "{name}" not found', name=name, group=group, kind=plural)

    @classmethod
    def already_exists(cls, resource: str, name: str) -> ApiError:
        """409: create of a name that is taken."""
        plural, _, group = resource.partition(".")
        return cls(409, "AlreadyExists", f'{resource} "{name}" already exists', name=name, group=group, kind=plural)

    @classmethod
    def conflict(cls, resource: str, name: str, why: str) -> ApiError:
        """409: the object changed, or is not the one that the precondition names."""
        plural, _, group = resource.partition(".")
        message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
        return cls(409, "Conflict", message, name=name, group=group, kind=plural)

    @classmethod
    def invalid(cls, what: str, name: str, field: str, why: str) -> ApiError:
        """422: well-formed, but a field has a value that can't be."""
        cause = {"reason": "FieldValueInvalid", "message": why, "field": field}
        return cls(422, "Invalid", f'{what} "{name}" is invalid: {field}: {why}', name=name, kind=what, causes=[cause])


class ExpiredError(ApiError):
    """410: changes after `asked` are no longer all known, because the history before `floor` was compacted."""

    def __init__(self, asked: int, floor: int) -> None:
        super().__init__(410, "Expired", f"too old resource version: {asked} ({floor})")
