"""Processes that run in a terminal of their own."""

import fcntl
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Mapping


def start_in_terminal(
    command: list[str], environment: Mapping[str, str] = os.environ
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process as a shell would; return it and the other end of its terminal."""
    terminal, inner = pty.openpty()

    def take_terminal() -> None:
        # A test process may ignore these two: under nohup, and as one of several workers.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # Only a controlling terminal turns Ctrl-C and its own end into signals.
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        command,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
        env=environment,
        preexec_fn=take_terminal,
    )
    os.close(inner)
    return process, terminal
