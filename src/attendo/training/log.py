"""The log of a training: `log.jsonl`, TensorBoard files on request, and the training curve."""

import json
import math
import time
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from attendo.errors import ConfigError, install_command
from attendo.files import explained, replacing, write_text

Entry = dict[str, Any]
"""The numbers of a step: a line of the log."""


@runtime_checkable
class Listener(Protocol):
    """Records the numbers of the steps."""

    def add(self, entry: Entry) -> None:
        """Record an entry."""
        ...

    def close(self) -> None:
        """Release what the log holds."""
        ...


class Log:
    """`log.jsonl`: one JSON object per entry, in the order of the steps."""

    def __init__(self, path: Path, *, from_step: int = 0) -> None:
        self.path = path
        self.entries = [entry for entry in read_log(path) if entry["step"] <= from_step]
        # Entries of steps that will be repeated, and a half-written last line, are removed.
        write_text(path, "".join(json.dumps(entry) + "\n" for entry in self.entries))
        self.file = path.open("a", encoding="utf-8")

    def add(self, entry: Entry) -> None:
        """Append an entry."""
        self.entries.append(entry)
        with explained(self.path):
            self.file.write(json.dumps(entry) + "\n")
            self.file.flush()

    def close(self) -> None:
        """Close the file."""
        with explained(self.path):  # which tries again to write what is left
            self.file.close()


def read_log(path: Path) -> list[Entry]:
    """Read a log, without lines that are damaged."""
    entries = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict) and _is_report(entry):
                entries.append(entry)
    return entries


def _is_report(entry: Entry) -> bool:
    is_numeric = all(isinstance(value, int | float) for value in entry.values())
    return is_numeric and isinstance(entry.get("step"), int)


class TensorBoard:
    """The same entries as event files for TensorBoard."""

    def __init__(self, folder: Path, *, from_step: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "training.tensorboard = true needs the package tensorboard: "
                f"{install_command('tensorboard')}"
            ) from None
        # Entries of steps that will be repeated are hidden.
        self.writer = SummaryWriter(str(folder), purge_step=from_step + 1)

    def add(self, entry: Entry) -> None:
        """Write every number of an entry under its name."""
        for name, value in entry.items():
            if name != "step":
                self.writer.add_scalar(name, value, entry["step"], time.time())

    def close(self) -> None:
        """Complete the event file."""
        self.writer.close()


def draw_curve(entries: list[Entry], path: Path) -> None:
    """Draw training loss, validation loss and validation BLEU against the steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    _line(axes, entries, "loss", label="training loss", color="#9db7d5", linewidth=1)
    _line(axes, entries, "valid_loss", label="validation loss", color="#1f4e8c", marker="o")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats a token)")
    axes.grid(alpha=0.25)
    handles = axes.get_lines()
    scores = [entry["valid_bleu"] for entry in entries if "valid_bleu" in entry]
    if scores:
        right = axes.twinx()
        _line(right, entries, "valid_bleu", label="validation BLEU", color="#c2571a", marker="s")
        right.set_ylabel("BLEU")
        right.set_ylim(0, min(100, 10 * math.ceil((max(scores) + 1) / 10)))
        handles = [*handles, *right.get_lines()]
    axes.legend(handles=handles, loc="center right", frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def _line(axes: Any, entries: list[Entry], key: str, **style: Any) -> None:
    points = [(entry["step"], entry[key]) for entry in entries if key in entry]
    if points:
        axes.plot(*zip(*points, strict=True), markersize=4, **style)
