"""Labels for the positions of a sequence: a linear layer on an encoder."""

from jaxtyping import Float
from torch import Tensor, nn

from attendo.models.base import Encoder, Memory
from attendo.nn.grid import Grid
from attendo.nn.multihead import MultiHeadAttention
from attendo.nn.stack import Recorded


class Classifier(Encoder):
    """Scores every class at every position; which positions count is for the task to decide."""

    def __init__(self, body: Encoder, d_model: int, n_classes: int) -> None:
        super().__init__()
        self.body = body
        self.output = nn.Linear(d_model, n_classes, bias=False)
        nn.init.zeros_(self.output.weight)  # all classes are equally likely before training

    def parts(self) -> list[nn.Module]:
        """Return those of the encoder."""
        return self.body.parts()

    def encode(self, source: Grid) -> Memory:
        """Encode the source."""
        return self.body.encode(source)

    def logits(self, hidden: Float[Tensor, "*R D"]) -> Float[Tensor, "*R C"]:
        """Return the scores of all classes."""
        scores: Tensor = self.output(hidden)
        return scores

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """Return those of the encoder."""
        return self.body.attentions()

    def record(self, source: Grid) -> tuple[Memory, Recorded]:
        """Encode the source, and return also what was computed on the way."""
        return self.body.record(source)
