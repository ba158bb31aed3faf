"""What tasks that predict something about given texts have in common."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.data.packing import pad_grid
from attendo.errors import BundleError, DataError
from attendo.hypotheses import NOT_FINITE
from attendo.models import Encoder, Memory, Model
from attendo.tasks.base import Done, Task

AT_ONCE = 1024
"""Rows that are sorted by length together."""


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


def similar(rows: Iterable[Any], batch_size: int) -> Iterator[tuple[list[int], list[Any]]]:
    """Put rows of similar length into batches, each with the numbers of its rows.

    Only the rows of a few batches are in memory at a time: each may be the content of a file.
    """
    numbered = enumerate(rows)
    while part := sorted(islice(numbered, AT_ONCE), key=lambda one: len(one[1])):
        for start in range(0, len(part), batch_size):
            numbers, chosen = zip(*part[start : start + batch_size], strict=True)
            yield list(numbers), list(chosen)


def encode_rows(
    model: Encoder, rows: Iterable[Any], pad: int, batch_size: int, device: torch.device
) -> Iterator[tuple[list[int], Memory]]:
    """Encode rows of ids or vectors in batches of similar length; yields numbers and memories."""
    for numbers, chosen in similar(rows, batch_size):
        with torch.inference_mode():
            memory = model.encode(pad_grid(chosen, pad).to(device))
        yield numbers, memory


def finite(values: Tensor) -> Tensor:
    """Return what a model has computed, unless it is a damaged one."""
    if not values.isfinite().all():
        raise BundleError(NOT_FINITE)
    return values
