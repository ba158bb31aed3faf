"""Labels for the positions of a sequence: a linear layer on an encoder."""

from jaxtyping import Float
from torch import Tensor, nn

from attendo.models.base import Encoder, HeadedEncoder, Memory
from attendo.nn.grid import segment_maxima, segment_means


class Classifier(HeadedEncoder):
    """Scores every class at every position; which positions count is for the task to decide."""

    def __init__(
        self,
        body: Encoder,
        d_model: int,
        n_classes: int,
        *,
        pooling: str = "first",
    ) -> None:
        super().__init__(body)
        self.pooling = pooling
        self.output = nn.Linear(d_model, n_classes, bias=False)
        nn.init.zeros_(self.output.weight)  # all classes are equally likely before training

    def pool(self, memory: Memory) -> Float[Tensor, "R S D"]:
        """Return what the output layer is given: hidden states, or those of a sequence as one."""
        if self.pooling == "first":
            return memory.hidden
        return POOLINGS[self.pooling](memory.hidden, memory.segments)


POOLINGS = {"mean": segment_means, "max": segment_maxima}
"""How the hidden states of a sequence become one, at each of its positions."""
