"""What is written down of a training: `log.jsonl`, and TensorBoard files for those who use it."""

import json
import time
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from attendo.errors import ConfigError, install_command
from attendo.files import explained, write_text

Entry = dict[str, Any]
"""What is known of a step: a line of the log."""


@runtime_checkable
class Listener(Protocol):
    """Keeps what is known of the steps."""

    def add(self, entry: Entry) -> None:
        """Take a report."""
        ...

    def close(self) -> None:
        """Finish."""
        ...


class Log:
    """`log.jsonl`: one JSON object for each report, in the order of the steps."""

    def __init__(self, path: Path, *, from_step: int = 0) -> None:
        self.path = path
        self.entries = [entry for entry in read_log(path) if entry["step"] <= from_step]
        # Reports of steps that will be done again, and a half-written last line, are removed.
        write_text(path, "".join(json.dumps(entry) + "\n" for entry in self.entries))
        self.file = path.open("a", encoding="utf-8")

    def add(self, entry: Entry) -> None:
        """Append a report."""
        self.entries.append(entry)
        with explained(self.path):
            self.file.write(json.dumps(entry) + "\n")
            self.file.flush()

    def close(self) -> None:
        """Close the file."""
        with explained(self.path):  # what could not be written is tried once more
            self.file.close()


def read_log(path: Path) -> list[Entry]:
    """Read a log, leaving out a line that was cut short."""
    entries = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and "step" in entry:
                entries.append(entry)
    return entries


class TensorBoard:
    """The same reports as event files for TensorBoard."""

    def __init__(self, folder: Path, *, from_step: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "training.tensorboard = true needs the package tensorboard: "
                f"{install_command('tensorboard')}"
            ) from None
        # Reports of steps that will be done again are hidden.
        self.writer = SummaryWriter(str(folder), purge_step=from_step + 1)

    def add(self, entry: Entry) -> None:
        """Write every number of a report under its name."""
        for name, value in entry.items():
            if name != "step":
                self.writer.add_scalar(name, value, entry["step"], time.time())

    def close(self) -> None:
        """Finish the event file."""
        self.writer.close()
