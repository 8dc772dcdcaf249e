"""Targets that misbehave, all of them: what each does, and with which exit code a run against it may end.

A target is a command of the scripts beside this module, with the placeholders of `--epp cmd:…` and of profiles. The
tests run each, and the page of the docs about misbehaving targets lists them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Party = Literal["endpoint picker", "gateway", "model server"]

GOOD = 4
"""Streams for which an endpoint picker is right that passes the gate; then it goes wrong."""

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target. `code`: the exit code of a run, 4 where it never gets as far as the scenarios."""

    name: str
    party: Party
    does: str
    code: int
    script: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """How it is started."""
        return (sys.executable, str(_FOLDER / f"{self.script}.py"), *self.arguments)


def _epp(name: str, does: str, code: int = 1, *, good: int = GOOD) -> Target:
    arguments = ("{port}", "{endpointsFile}", name, str(good))
    return Target(
        name=f"{name}-at-once" if not good else name,
        party="endpoint picker",
        does=does,
        code=code,
        script="epps",
        arguments=arguments,
    )


def _process(name: str, does: str, code: int) -> Target:
    arguments = ("{port}", "{endpointsFile}", name)
    return Target(name=name, party="endpoint picker", does=does, code=code, script="processes", arguments=arguments)


def _socket(name: str, does: str) -> Target:
    return Target(
        name=f"port-{name}", party="endpoint picker", does=does, code=4, script="sockets", arguments=("{port}", name)
    )


def _gateway(name: str, does: str, code: int, *, good: int | None = None) -> Target:
    if good is None:
        script, arguments = "gateways", (name, "{port}", "{endpoints}")
    else:
        inner = ("-m", "reference_gateway", "--listen", "127.0.0.1:@", "--epp", "{epp}", "--endpoints", "{endpoints}")
        script, arguments = "front", ("{port}", name, str(good), sys.executable, *inner)
    late = "" if good is None else "late-"
    return Target(
        name=f"gateway-{late}{name}",
        party="gateway",
        does=does,
        code=code,
        script=script,
        arguments=arguments,
    )


def _server(name: str, does: str) -> Target:
    return Target(
        name=f"server-{name}", party="model server", does=does, code=4, script="sockets", arguments=("{port}", name)
    )


TARGETS: tuple[Target, ...] = (
    # -- on the stream
    _epp("silent", "answers nothing, from the first stream on", 4, good=0),
    _epp("closes", "closes every stream, from the first on", 4, good=0),
    _epp("dies", "exits at the first message", 4, good=0),
    _epp("silent", "answers nothing"),
    _epp("headers_only", "answers headers only"),
    _epp("closes", "closes every stream"),
    _epp("resets", "resets every stream"),
    _epp("breaks", "cuts the connection"),
    _epp("garbage", "sends bytes that are no gRPC message"),
    _epp("drips", "sends a message byte by byte, for minutes"),
    _epp("floods", "sends answers without end"),
    _epp("endless_body", "sends a body without end"),
    _epp("hangs", "hangs as a whole, its connections open"),
    _epp("spins", "computes without end"),
    _epp("stops_itself", "freezes (SIGSTOP)"),
    _epp("dies", "exits in the middle of a stream"),
    _epp("removes_folder", "removes the folder of its endpoints file"),
    _epp("makes_folder", "puts a folder in place of its endpoints file"),
    _epp("links_files", "puts links to a file of the user's in place of the suite's files"),
    _epp("makes_fifos", "puts FIFOs in place of its endpoints file"),
    _epp("links_folder", "puts a link to a folder of the user's in place of that of its endpoints file", 4),
    _epp("html", "answers 502 with a page of HTML"),
    _epp("content_type", "answers 200 with JSON"),
    _epp("trailers_only", "ends streams with an error whose message is HTML and control characters"),
    _epp("no_trailers", "ends streams without trailers"),
    _epp("answers_after_its_end", "ends streams, and answers then"),
    _epp("giant_trailers", "ends streams with 2 MB of trailers"),
    _epp("bytes_of:compressed", "sets the compressed flag"),
    _epp("bytes_of:cut-short", "claims a longer message than it sends"),
    _epp("bytes_of:huge-claim", "claims a message of 4 GiB"),
    _epp("bytes_of:no-message", "sends a message that can't be decoded"),
    _epp("bytes_of:empty", "sends 1,000 empty messages for one"),
    _epp("bytes_of:twice", "answers twice"),
    _epp("bytes_of:unknown-fields", "adds 300,000 unknown fields"),
    _epp("bytes_of:invalid-utf8", "sends strings that are no UTF-8"),
    _epp("bytes_of:deep-struct", "nests metadata 3,000 levels deep"),
    _epp("bytes_of:huge-metadata", "names 200,000 endpoints"),
    _epp("bytes_of:nan", "puts NaN and infinity into metadata"),
    _epp("bytes_of:immediate-html", "replies with HTML and control characters"),
    _epp("bytes_of:many-headers", "sets 20,000 headers"),
    _epp("bytes_of:giant-header", "sets a header of 2 MB"),
    _epp("bytes_of:crlf-header", "sets a header with line breaks"),
    _epp("bytes_of:nul-header", "sets a header with a NUL byte"),
    _epp("bytes_of:pseudo-header", "changes `:path`"),
    # -- on the connection
    _epp("wire:rst-flood", "sends RST_STREAM without end"),
    _epp("wire:ping-flood", "sends PING without end"),
    _epp("wire:settings-flood", "sends SETTINGS without end"),
    _epp("wire:unknown-frames", "sends frames of an unknown type without end"),
    _epp("wire:empty-data", "sends empty DATA frames without end"),
    _epp("wire:goaway-calm", "says GOAWAY with an error, and HTML"),
    _epp("wire:garbage", "sends bytes that are no frames"),
    _epp("wire:hpack-garbage", "sends a header block that can't be decoded"),
    _epp("wire:hpack-bomb", "sends a header block of 12 KB that stands for 46 MB"),
    _epp("wire:endless-continuation", "never ends a header block"),
    _epp("wire:giant-headers", "sends 4 MB of headers"),
    _epp("wire:endless-1xx", "sends informational heads without end"),
    _epp("wire:zero-window", "gives no window, then nothing"),
    _epp("wire:window-too-large", "widens the window too far"),
    _epp("wire:window-of-zero", "widens the window by 0"),
    _epp("wire:push-promise", "promises to push"),
    _epp("wire:frame-too-long", "announces a frame of 16 MB"),
    _epp("wire:no-streams", "allows no streams any more"),
    _epp("wire:stream-that-never-was", "sends data on a stream that is not open"),
    # -- on the port
    _socket("never-reads", "accepts connections and reads nothing"),
    _socket("half-open", "reads, and says nothing"),
    _socket("resets", "resets connections"),
    _socket("closes-in-settings", "closes in the middle of its SETTINGS"),
    _socket("settings-and-silence", "says SETTINGS, and nothing more"),
    _socket("slow-drip", "says SETTINGS byte by byte"),
    _socket("tls-garbage", "begins TLS, and ends in garbage"),
    _socket("ssh", "is an SSH server"),
    _socket("html", "is a web server"),
    _socket("unauthorized", "is a web server that answers 401"),
    _socket("endless-garbage", "sends random bytes without end"),
    # -- as a process
    _process("exits-0", "exits with 0 at once", 4),
    _process("exits-after-listening", "listens for a second, answers nothing, and exits with 0", 4),
    _process("tracebacks", "exits with a traceback of HTML and control characters", 4),
    _process("never-listens", "never listens", 4),
    _process("listens-elsewhere", "listens on another port", 4),
    _process("leaves", "starts a server in a new session, and exits", 4),
    _process("forks", "is right, and starts processes that stay", 4),
    _process("ignores-sigterm", "is right, and ignores SIGTERM, as its child does", 4),
    _process("shouts", "is right, and prints control characters without end", 4),
    _process("one-line", "is right, and prints one line without end", 4),
    _process("closes-output", "is right, and closes its output", 4),
    _process("freezes", "answers nothing, and is frozen after two seconds", 4),
    _process("replaces-file", "writes random bytes into its endpoints file", 4),
    _process("grows-file", "writes 12 MB into its endpoints file", 1),
    _process("nests-folders", "leaves 1,500 nested folders", 4),
    _process("leaves-files", "leaves 20,000 files, and a folder whose name is no UTF-8", 4),
    # -- gateways
    _gateway("unasked", "asks no endpoint picker", 4),
    _gateway("garbage", "answers with bytes that are no HTTP", 4),
    _gateway("closes", "closes connections", 4),
    _gateway("hangs", "answers nothing", 4),
    _gateway("dies", "exits at the first request", 4),
    _gateway("deaf", "never listens", 4),
    _gateway("exits", "exits at once", 4),
    _gateway("half-open", "passes the gate, then answers nothing", 1, good=2),
    _gateway("resets", "passes the gate, then resets connections", 1, good=2),
    _gateway("garbage", "passes the gate, then answers with random bytes", 1, good=2),
    _gateway("http-slow-drip", "passes the gate, then answers byte by byte", 1, good=2),
    _gateway("http-1xx", "passes the gate, then sends 100 Continue without end", 1, good=2),
    _gateway("http-headers", "passes the gate, then sends headers without end", 1, good=2),
    _gateway("http-body", "passes the gate, then sends a body without end", 1, good=2),
    _gateway("http-bad-chunks", "passes the gate, then breaks the chunked coding", 1, good=2),
    _gateway("html", "passes the gate, then answers with HTML", 1, good=2),
    _gateway("dies", "passes the gate, then exits", 1, good=2),
    _gateway("freezes", "passes the gate, then freezes", 1, good=2),
    # -- model servers
    _server("half-open", "answers nothing"),
    _server("garbage", "answers with random bytes"),
    _server("http-slow-drip", "answers byte by byte"),
    _server("http-1xx", "sends 100 Continue without end"),
    _server("http-headers", "sends headers without end"),
    _server("http-body", "sends a body without end"),
    _server("http-lines", "sends events without end"),
    _server("http-nested", "answers with JSON 200,000 levels deep"),
    _server("http-nan", "answers with JSON that has NaN and no UTF-8"),
    _server("http-gzip", "says gzip and sends none"),
    _server("redirects", "redirects to a port of its choice"),
)
"""All of them; names are unique within a party."""
