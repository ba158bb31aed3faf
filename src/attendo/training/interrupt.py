"""Signals end a training after the current step, with everything saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether the training is to stop."""

    is_asked = False


@contextmanager
def polite_interrupt() -> Iterator[Interrupt]:
    """Record the first SIGINT, SIGTERM or SIGHUP; a second one stops at once."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt  # signals reach the main thread only
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # which is what nohup does
        before[signal.SIGHUP] = signal.getsignal(signal.SIGHUP)

    def ask(number: int, frame: FrameType | None) -> None:
        interrupt.is_asked = True
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield interrupt
    finally:
        restore()
