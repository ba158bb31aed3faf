"""Batches made ahead: a thread keeps a few ready, on the device, so that training never waits."""

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar

import torch

from attendo.data.batches import Batch, Position

T = TypeVar("T")


def prefetch(items: Iterator[T], depth: int = 8) -> Generator[T, None, None]:
    """Yield the same items in the same order, drawn in the background.

    The thread ends when the caller closes the generator. Its errors are raised here.
    """
    ready: queue.Queue[T | BaseException | None] = queue.Queue(maxsize=depth)
    is_closed = threading.Event()

    def put(item: T | BaseException | None) -> bool:
        while not is_closed.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(None)
        except BaseException as error:
            put(error)

    worker = threading.Thread(target=work, name="attendo-prefetch", daemon=True)
    worker.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        is_closed.set()
        worker.join()


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
