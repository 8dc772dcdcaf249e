"""Ctrl-C, SIGTERM and a terminal that is closed: all mean that the command is to end, with everything cleaned up."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

SAME_WISH = 3.0
"""Seconds in which further interruptions are taken for the same one; after that they end what is still done."""

SAME_SIGNAL = 0.3
"""The same, where a second one is another wish: so soon come the copies that a terminal, `timeout` or a parent process
make of one signal."""

_AGAIN = 0.02
"""Seconds until a signal comes again that was lost in a finalizer, and between further ones until it is heeded."""

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupt:
    """Handles signals as Python does SIGINT. Those that soon follow mean the same: they must not cost the report."""

    def __init__(self) -> None:
        self.after_first = SAME_WISH
        """Seconds in which those that follow the first one mean the same."""
        self._meant, self._same = -SAME_WISH, SAME_WISH
        self._number, self._lost = signal.SIGINT.value, False
        self._usual = sys.unraisablehook

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._lost and _runs(Interrupt.dropped, frame):
            return  # what is raised in that hook is lost for good
        now = time.monotonic()
        if self._lost or now - self._meant >= self._same:
            if not self._lost:
                self._same, self.after_first = self.after_first, SAME_WISH
            self._meant, self._number, self._lost = now, number, False
            raise KeyboardInterrupt

    def dropped(self, lost: sys.UnraisableHookArgs) -> None:
        """The hook for what Python drops (`sys.unraisablehook`). A signal that is lost so comes again, as the same."""
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            self._usual(lost)
            return
        self._lost = True
        with contextlib.suppress(RuntimeError):  # the interpreter ends, and so does the command
            threading.Thread(target=self._again, daemon=True).start()

    def _again(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        while self._lost:
            time.sleep(_AGAIN)
            signal.pthread_kill(main, self._number)


def _runs(function: Callable[..., object], frame: FrameType | None) -> bool:
    """Whether `frame`, or what called it, is a call of the function."""
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


def interruptible() -> None:
    """From here on these signals raise `KeyboardInterrupt`, but for those that are ignored, as under nohup.

    Python drops what is raised in a finalizer or in the callback of a weak reference, and runs handlers there, too.
    """
    interrupt = Interrupt()
    sys.unraisablehook = interrupt.dropped
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def second_is_another_wish() -> None:
    """From here on the second signal is another wish than the first, unless they come together; those that follow are
    not, and don't cost the report."""
    for number in _SIGNALS:
        if isinstance(handler := signal.getsignal(number), Interrupt):
            handler.after_first = SAME_SIGNAL


def nothing_to_interrupt() -> None:
    """The work is done, and its verdict stands: what is left is to tell it. A signal that comes now is ignored, as all
    that it could do is to make the exit code contradict what is printed."""
    for number in _SIGNALS:
        if isinstance(signal.getsignal(number), Interrupt):
            signal.signal(number, signal.SIG_IGN)
