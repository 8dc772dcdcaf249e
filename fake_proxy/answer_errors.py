"""How Envoy objects to an answer of the EPP. Raised and caught inside the machine, never seen by its callers."""

from __future__ import annotations

NOT_STREAMED = "spurious message: Normal body mutation response is received while body_mode_ is FULL_DUPLEX_STREAMED"
STREAMED = "spurious message: streamed_response is received while body_mode_ is not FULL_DUPLEX_STREAMED"


class AnswerError(Exception):
    """The EPP's answer is not acceptable; `details` in Envoy's words, with blanks."""

    def __init__(self, details: str) -> None:
        super().__init__(details)
        self.details = details


class SpuriousError(AnswerError):
    """A message that is out of order or of the wrong kind. `failure_mode_allow` forgives it."""

    def __init__(self, details: str = "spurious message") -> None:
        super().__init__(details)


class RejectedError(AnswerError):
    """A message in its place with a mutation that can't be applied. Nothing forgives it. The client gets `body`, and
    `status` if that is not the configured one."""

    def __init__(self, details: str, *, status: int | None = None, body: bytes = b"") -> None:
        super().__init__(details)
        self.status = status
        self.body = body
