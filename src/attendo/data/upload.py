"""Batches on their way to a GPU, beside the work on the batch before."""

from collections.abc import Iterator

import torch

from attendo.data.batches import Batch, Position


def upload(
    batches: Iterator[tuple[Position, Batch]], device: torch.device
) -> Iterator[tuple[Position, Batch]]:
    """Move batches to a device, in the thread that prepares them."""
    if device.type != "cuda":
        yield from batches
        return
    # On a stream of its own and from pinned memory the copy does not queue behind a training step.
    stream = torch.cuda.Stream(device)
    for position, batch in batches:
        with torch.cuda.stream(stream):
            moved = batch.pin_memory().to(device)
        stream.synchronize()
        yield position, moved
