"""Ctrl-C and kill end a training politely: after the step, with everything saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether somebody has asked the training to stop."""

    is_asked = False


@contextmanager
def polite_interrupt() -> Iterator[Interrupt]:
    """Turn the first SIGINT or SIGTERM into a request; a second one stops at once, as usual."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt  # signals reach the main thread only
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def ask(number: int, frame: FrameType | None) -> None:
        interrupt.is_asked = True
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in signals:
        signal.signal(number, ask)
    try:
        yield interrupt
    finally:
        restore()
