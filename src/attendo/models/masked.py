"""Guessing the masked tokens of a sequence: BERT's head on an encoder."""

from collections import OrderedDict

from jaxtyping import Float
from torch import Tensor, nn

from attendo.models.base import Encoder, HeadedEncoder


class MaskedLM(HeadedEncoder):
    """Scores the whole vocabulary at every position; which positions count is for the task.

    The head is that of Devlin et al. 2019: output(norm(gelu(linear(x)))), where the output layer
    shares its matrix with the embedding of the body.
    """

    def __init__(self, body: Encoder, *, tied: bool = True, epsilon: float = 1e-5) -> None:
        super().__init__(body)
        embedding = body.get_parameter("embedding.weight")
        vocabulary, d_model = embedding.shape
        linear = nn.Linear(d_model, d_model)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        norm = nn.LayerNorm(d_model, eps=epsilon)
        self.transform = nn.Sequential(OrderedDict(linear=linear, activation=nn.GELU(), norm=norm))
        self.output = nn.Linear(d_model, vocabulary)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        if tied:
            self.output.weight = embedding

    def parts(self) -> list[nn.Module]:
        """Return those of the body, and what is before the output layer."""
        parts = super().parts()
        return [*parts, self.transform] if parts else []

    def logits(self, hidden: Float[Tensor, "*R D"]) -> Float[Tensor, "*R V"]:
        """Return the scores of the whole vocabulary, given the hidden states of the body."""
        return super().logits(self.transform(hidden))
