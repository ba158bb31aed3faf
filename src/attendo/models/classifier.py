"""Labels for the positions of a sequence: a linear layer on an encoder."""

from torch import nn

from attendo.models.base import Encoder, HeadedEncoder


class Classifier(HeadedEncoder):
    """Scores every class at every position; which positions count is for the task to decide."""

    def __init__(self, body: Encoder, d_model: int, n_classes: int) -> None:
        super().__init__(body)
        self.output = nn.Linear(d_model, n_classes, bias=False)
        nn.init.zeros_(self.output.weight)  # all classes are equally likely before training
