"""Servers that do one thing to every connection: `python sockets.py PORT WHAT`. None of them is an endpoint picker.

In place of a port, `fd:N` is a listening socket that is inherited; it is said when connections are taken from it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
import time

from ext_proc.http2 import frames

CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
PAGE = b"<html><script>alert(1)</script>\x1b[2J</html>"


def answer(header: str, body: bytes) -> bytes:
    """A whole response."""
    return f"HTTP/1.1 200 OK\r\n{header}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def serve(what: str, client: socket.socket) -> None:
    """Do it to one client, until it is done or the client goes away."""
    if what not in ("never-reads", "resets", "closes"):
        client.recv(65_536)
    match what:
        case "never-reads" | "half-open":
            time.sleep(3600)
        case "resets":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        case "closes":
            pass
        case "closes-in-settings":
            client.sendall(frames.settings(((3, 100),))[:7])
        case "tls-garbage":
            client.sendall(b"\x16\x03\x01\x02\x00\x01" + os.urandom(400))
        case "ssh":
            client.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
        case "html":
            client.sendall(answer("content-type: text/html", PAGE))
        case "unauthorized":
            client.sendall(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
        case "redirects":
            client.sendall(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
        case "garbage":
            client.sendall(os.urandom(4096))
        case "endless-garbage":
            while True:
                client.sendall(os.urandom(65_536))
        case "slow-drip":
            for byte in frames.settings(((3, 100),) * 1000):
                client.sendall(bytes((byte,)))
                time.sleep(0.05)
        case "settings-and-silence":
            client.sendall(frames.settings(()))
            time.sleep(3600)
        case "http-slow-drip" | "http-slow-head":
            end = b"x-long: " if what == "http-slow-head" else b"content-length: 100000\r\n\r\n"
            for byte in b"HTTP/1.1 200 OK\r\n" + end + b"x" * 100_000:
                client.sendall(bytes((byte,)))
                time.sleep(0.05)
        case "http-1xx":
            while True:
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
        case "http-headers":
            client.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                client.sendall(b"x-header: " + b"y" * 1000 + b"\r\n")
        case "http-body":
            client.sendall(CHUNKED)
            while True:
                client.sendall(b"10000\r\n" + bytes(65_536) + b"\r\n")
        case "http-lines":
            client.sendall(CHUNKED)
            while True:
                client.sendall(b'f\r\ndata: {"a": 1}\n\r\n' * 4096)
        case "http-cut":
            client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
        case "http-bad-chunks":
            client.sendall(CHUNKED + b"zz\r\nhello\r\n")
        case "http-nested":
            client.sendall(answer("content-type: application/json", b"[" * 200_000))
        case "http-nan":
            body = b'{"id": NaN, "choices": [1e999], "model": "\xff\xfe"}'
            client.sendall(answer("content-type: application/json", body))
        case "http-gzip":
            client.sendall(answer("content-encoding: gzip", b"\x1f\x8b\x08\x00 this is no gzip"))
        case _:
            sys.exit(f"nothing is called {what!r}")


def finish(client: socket.socket) -> None:
    """Let what was said arrive: a connection that is closed over unread bytes is reset."""
    client.shutdown(socket.SHUT_WR)
    client.settimeout(5)
    while client.recv(65_536):
        pass


def listening(where: str) -> socket.socket:
    if not where.startswith("fd:"):
        return socket.create_server(("127.0.0.1", int(where)))
    print("ready", flush=True)
    return socket.socket(fileno=int(where[3:]))


def main(where: str, what: str) -> None:
    def one(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            serve(what, client)
            finish(client)

    with listening(where) as server:
        while True:
            client, _ = server.accept()
            threading.Thread(target=one, args=(client,), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
