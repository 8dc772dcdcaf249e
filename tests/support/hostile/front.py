"""A server that is right for so many connections, and then does one thing to each.

`python front.py PORT WHAT GOOD COMMAND…`: connections go to the server that COMMAND starts, with `@` for its port; from
the one after the first GOOD on, they are served as `sockets.py` does it, or `dies`, `freezes` or `deaf` happens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import sockets


def relay(client: socket.socket, port: int) -> None:
    """Pass bytes on in both directions, until one side is done."""
    with socket.create_connection(("127.0.0.1", port)) as behind:

        def back() -> None:
            with contextlib.suppress(OSError):
                while data := behind.recv(65_536):
                    client.sendall(data)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=back, daemon=True).start()
        while data := client.recv(65_536):
            behind.sendall(data)


def main(port: int, what: str, good: int, command: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        inner = found.getsockname()[1]
    subprocess.Popen([one.replace("@", str(inner)) for one in command])
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", inner)):
            break
        time.sleep(0.05)

    def one(client: socket.socket, number: int) -> None:
        with client, contextlib.suppress(OSError):
            if number <= good:
                relay(client, inner)
                return
            match what:
                case "dies":
                    print("panic: <b>I can't go on</b> \x1b[31m", flush=True)
                    os._exit(7)
                case "freezes":
                    os.kill(os.getpid(), signal.SIGSTOP)
                case _:
                    sockets.serve(what, client)
                    sockets.finish(client)

    number = 0
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            client, _ = server.accept()
            number += 1
            if number > good and what == "deaf":
                client.close()
                break
            threading.Thread(target=one, args=(client, number), daemon=True).start()
    time.sleep(3600)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
