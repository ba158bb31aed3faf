"""Start a worker, show its progress, and stop it after it has saved."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Any

import attendo
from attendo.errors import TrainingError
from attendo.reporter import Reporter
from attendo.training.complete import Interrupted


class Relay:
    """Shows a worker's events to a reporter."""

    def __init__(self, reporter: Reporter, title: str) -> None:
        self.reporter = reporter
        self.title = title
        self.bar: AbstractContextManager[Callable[[int, str], None]] | None = None
        self.advance: Callable[[int, str], None] = lambda n, remark: None
        self.error = ""

    def forward(self, event: dict[str, Any]) -> None:
        """Forward one event to the reporter."""
        if "say" in event:
            self.reporter.say(f"  {event['say']}")
        elif "bar" in event:
            self.close()
            title = f"{self.title}: {event['bar']}"
            self.bar = self.reporter.bar(title, event["total"], event["done"])
            self.advance = self.bar.__enter__()
        elif "advance" in event:
            self.advance(event["advance"], event["remark"])
        elif "end" in event:
            self.close()
        elif "error" in event:
            self.error = event["error"]

    def close(self) -> None:
        """Close the progress bar, if there is one."""
        if self.bar:
            self.bar.__exit__(None, None, None)
        self.bar, self.advance = None, lambda n, remark: None


def work(job: dict[str, Any], log: Path, reporter: Reporter, title: str, lock: IO[str]) -> None:
    """Run a job in a process of its own, to the end.

    Args:
        job: What `worker` is to do.
        log: File for what the process writes to standard error.
        reporter: Who is shown what happens.
        title: Whose work it is.
        lock: An open file that the process holds as long as it lives.

    Raises:
        TrainingError: The job failed; the message has the reason.
        Interrupted: Ctrl-C came; the process has saved its state and ended.
    """
    relay = Relay(reporter, title)
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "attendo.lab.compare.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env=_environment(),
            start_new_session=True,  # Ctrl-C reaches only this process, which forwards it
            pass_fds=(lock.fileno(),),
        )
    try:
        is_interrupted = _read_events(process, job, relay)
    finally:
        relay.close()
        _end(process)
    if is_interrupted or process.returncode == 130:
        raise Interrupted("stopped and saved")
    if process.returncode:
        raise TrainingError(relay.error or _describe_exit(process.returncode, log))


def _environment() -> dict[str, str]:
    """Return an environment in which the process imports this very package."""
    home = str(Path(attendo.__file__).parents[1])
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _read_events(process: subprocess.Popen[str], job: dict[str, Any], relay: Relay) -> bool:
    """Read the events of a process to the end; return whether it was interrupted."""
    assert process.stdin
    is_interrupted = False
    try:
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        _forward_all(process, relay)
    except KeyboardInterrupt:  # a second one ends the waiting, too
        is_interrupted = True
        relay.reporter.say("  stopping after this step (Ctrl-C again: at once)")
        process.send_signal(signal.SIGTERM)
        _forward_all(process, relay)
    except BrokenPipeError:
        pass  # it ended early; its exit code shows that
    process.wait()
    return is_interrupted


def _forward_all(process: subprocess.Popen[str], relay: Relay) -> None:
    assert process.stdout
    for line in process.stdout:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # cut by an interrupt, or printed by a library
        if isinstance(event, dict):
            relay.forward(event)


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and close its pipes."""
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(OSError):
                pipe.close()


def _describe_exit(code: int, log: Path) -> str:
    """Describe how a process ended that reported no error."""
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (perhaps out of memory)" if -code == signal.SIGKILL else ""
        return f"the process was ended by {name}{hint}; see {log}"
    return f"the process ended with exit code {code}; see {log}"
