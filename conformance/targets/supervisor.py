"""The parent of a target that the suite starts: `python supervisor.py PROGRAM ARGUMENT…`.

It exists so that nothing of a target outlives the run. Whatever the target forks, also into other sessions, falls back
to the supervisor when its parent ends (Linux: child subreaper), and is killed by it when the target ends, when the
suite says so, and when the suite itself is gone, even by SIGKILL: standard input is the suite's leash.

- in: `t` asks the target's process group to end (SIGTERM); the end of standard input kills everything.
- out: standard output is the target's, both of its streams. Standard error is for the suite: `started PID`,
  `failed ERRNO` if the program can't be run, and `ended CODE` (negative: the signal) when the target has ended.

It is started for every target, so it imports little, and nothing of the project: it runs alone, isolated from the
environment that it hands on.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> None:
    """Start `command`, and return when nothing of it is left."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else lambda *_: None
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        target = _start(command, prctl)
    except OSError as problem:
        _tell(f"failed {problem.errno}")
        return
    _tell(f"started {target}")
    code = _guard(target, wake)
    _signal_group(target, signal.SIGKILL)
    code = _end_all(target, code)
    if code is not None:
        _tell(f"ended {code}")


def _start(command: list[str], prctl: Callable[..., object]) -> int:
    """The process id of the target. Raises the OSError of exec."""
    failed, failing = os.pipe()  # close-on-exec: silence means that exec went well
    supervisor = os.getpid()
    target = os.fork()
    if target == 0:
        try:
            os.setsid()
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:
                os._exit(1)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; a program expects the default
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(1, 2)
            os.execv(command[0], command)
        except OSError as problem:
            os.write(failing, str(problem.errno).encode())
        finally:
            os._exit(127)
    os.close(failing)
    errno = os.read(failed, 16)
    os.close(failed)
    if errno:
        os.waitpid(target, 0)
        raise OSError(int(errno), "exec")
    return target


def _guard(target: int, wake: int) -> int | None:
    """Wait for the end of the target and return its code, or None when it is to be killed."""
    while True:
        if (code := _reap(target)) is not None:
            return code
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready and set(os.read(wake, 512)) - {signal.SIGCHLD}:
            return None
        if 0 in ready:
            said = os.read(0, 512)
            if not said:
                return None
            _signal_group(target, signal.SIGTERM)


def _reap(target: int) -> int | None:
    """Reap the children that have ended; the target's code if it was among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == target:
            found = os.waitstatus_to_exitcode(status)


def _end_all(target: int, code: int | None) -> int | None:
    """Kill and bury until no descendant is left: the children of a killed child become ours. The target's code.

    One that may not be killed (it changed its user) is left alone, rather than waited for.
    """
    while True:
        living = {*_children(), *({target} if code is None else ())}
        killed = [pid for pid in living if _killed(pid)]
        if not killed:
            return code
        pid, status = os.waitpid(-1, 0)
        found = os.waitstatus_to_exitcode(status) if pid == target else _reap(target)
        code = found if code is None else code


def _children() -> list[int]:
    """Our children; none where the system has no /proc, and processes that fled the group can't be found."""
    found: list[int] = []
    try:
        pids = [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return found
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - likewise
                # The name, in brackets, may hold anything; the state and the parent follow it.
                _, parent, *_ = stat.read().rpartition(b")")[2].split()
        except (OSError, ValueError):
            continue
        if int(parent) == os.getpid():
            found.append(int(pid))
    return found


def _signal_group(target: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has ended, or has changed its user
        os.killpg(target, number)


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):  # the suite is gone
        os.write(2, f"{line}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1:])
