"""What can go wrong with the real Envoy. Each error says what happened and what to do about it.

EnvoyError
├── EnvoyMissingError     no binary was found
├── EnvoyUnusableError    it can't be run here: not executable, another architecture, not Envoy
├── EnvoyTooOldError      it lacks what the settings ask for
├── EnvoyRejectedError    it refuses the configuration; `said` is its own message
└── EnvoyFailedError      it did not get ready in time
    └── EnvoyDiedError    it ended; `code` is its exit code, `tail` its last output
"""

from __future__ import annotations


class EnvoyError(Exception):
    """Root: `what` happened, `hint` is the next step."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}. {hint}")
        self.what = what
        self.hint = hint


class EnvoyMissingError(EnvoyError):
    """No Envoy binary was found in any of the places looked at."""


class EnvoyUnusableError(EnvoyError):
    """The file found can't be run on this machine, or is not Envoy."""


class EnvoyTooOldError(EnvoyError):
    """The binary lacks a feature that the settings ask for."""


class EnvoyRejectedError(EnvoyError):
    """Envoy refuses the configuration. `said` is what it printed."""

    def __init__(self, said: str) -> None:
        super().__init__(
            f"Envoy refuses the configuration: {said}",
            "Correct the settings that the message names; nothing was started",
        )
        self.said = said


class EnvoyFailedError(EnvoyError):
    """Envoy runs but did not get ready, or its admin API does not answer."""


class EnvoyDiedError(EnvoyFailedError):
    """The process ended. `code` is its exit code (negative: the signal), `tail` its last output."""

    def __init__(self, code: int, tail: str) -> None:
        ended = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
        super().__init__(
            f"Envoy {ended}",
            f"Its last output:\n{tail}" if tail else "It printed nothing: look for the kernel's out-of-memory messages",
        )
        self.code = code
        self.tail = tail
