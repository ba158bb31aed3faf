"""What a search on the CPU exchanges with a device that works at the same time."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


class End:
    """The end of all that a device has to do until now."""

    def __init__(self, device: torch.device) -> None:
        self.event = torch.cuda.Event() if device.type == "cuda" else None
        if self.event is not None:
            self.event.record()

    def query(self) -> bool:
        """Return whether it is reached."""
        return self.event is None or self.event.query()

    def wait(self) -> None:
        """Wait for it."""
        if self.event is not None:
            self.event.synchronize()


class Sender:
    """Sends numbers to a device, without waiting for what a GPU does.

    They are valid until so many have been sent after them that their room is needed.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        is_pinned = device.type == "cuda"
        self.here = torch.zeros(size, dtype=torch.long, pin_memory=is_pinned)
        self.there = torch.zeros(size, dtype=torch.long, device=device)
        self.used = 0

    def __call__(self, numbers: list[list[int]]) -> Int[Tensor, "P K"]:
        """Return the numbers on the device."""
        shape = len(numbers), len(numbers[0])
        count = shape[0] * shape[1]
        first = self.used if self.used + count <= len(self.here) else 0
        self.used = first + count
        here, there = (one[first : self.used] for one in (self.here, self.there))
        here.numpy()[:] = np.array(numbers).ravel()
        return there.copy_(here, non_blocking=True).view(shape)
