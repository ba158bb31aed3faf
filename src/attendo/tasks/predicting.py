"""What tasks that predict something about given texts have in common."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch

from attendo.config import DecodingConfig
from attendo.data.packing import pad_grid
from attendo.errors import DataError
from attendo.models import Encoder, Memory, Model
from attendo.tasks.base import Done, Task


@runtime_checkable
class Answer(Protocol):
    """What is predicted about a text."""

    def to_text(self) -> str:
        """Return it for people, in one line or more."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return it for programs."""
        ...


class PredictingTask(Task):
    """A task whose models read one text, or several that belong together, and return an answer."""

    inputs: ClassVar[tuple[str, ...]] = ("text",)
    """Names of the texts that are read: the first columns of a record."""
    promise: ClassVar[type[Model]] = Encoder

    def parse(self, given: str | Sequence[str]) -> tuple[str, ...]:
        """Return the texts that belong together; in one string they are separated by TABs."""
        n_texts = len(self.inputs)
        if isinstance(given, str):
            given = given.split("\t") if n_texts > 1 else (given,)
        if len(given) != n_texts:
            raise DataError(
                f"{given!r:.80} has {len(given)} texts; a model of the task {self.name!r} reads "
                f"{n_texts}: {' TAB '.join(self.inputs)}"
            )
        return tuple(given)

    @abstractmethod
    def predict(
        self,
        model: Any,
        texts: Sequence[str | Sequence[str]],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> list[Any]:
        """Return an answer for each text."""


def encode_rows(
    model: Encoder, rows: Sequence[Any], pad: int, batch_size: int, device: torch.device
) -> Iterator[tuple[list[int], Memory]]:
    """Encode rows of ids or vectors in batches of similar length; yields numbers and memories."""
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    for start in range(0, len(order), batch_size):
        numbers = order[start : start + batch_size]
        grid = pad_grid([rows[number] for number in numbers], pad).to(device)
        with torch.inference_mode():
            yield numbers, model.encode(grid)
