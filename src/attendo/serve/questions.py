"""What may be asked: the bodies of requests, with their limits."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

LONGEST_TEXT = 20_000
"""Characters of a text."""

Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Beam = Annotated[int, Field(ge=1, le=16)]


class Question(BaseModel):
    """What all requests say."""

    model_config = ConfigDict(extra="forbid")

    model: str = ""
    """The name of a model; the first one if empty."""
    source: Text
    silenced: list[str] = Field(default=[], max_length=1000)
    """Heads, such as cross.1.0."""


class TranslateQuestion(Question):
    """What is this in the other language?"""

    beam: Beam = 4


class LookQuestion(Question):
    """What happens while this pair is read? Without a target, the model's own translation."""

    target: Text | None = None


class LayerQuestion(LookQuestion):
    """What are the weights of this layer?"""

    kind: Literal["encoder", "decoder", "cross"]
    layer: Annotated[int, Field(ge=0)]


class HeadQuestion(LayerQuestion):
    """What are the vectors of this head?"""

    head: Annotated[int, Field(ge=0)]


class ChecksQuestion(LookQuestion):
    """How much do the weights across explain? Of a layer or of all, of a head or of all."""

    kind: Literal["cross"] = "cross"
    layer: Annotated[int, Field(ge=0)] | None = None
    head: Annotated[int, Field(ge=0)] | None = None


class WalkQuestion(BaseModel):
    """What happens to this sentence at every station?"""

    model_config = ConfigDict(extra="forbid")

    source: Text
    target: Text | None = None


class OrderQuestion(BaseModel):
    """Can the encoder tell these two sentences, with the same words, apart?"""

    model_config = ConfigDict(extra="forbid")

    first: Text
    second: Text
    positions: bool = True


class CheatQuestion(BaseModel):
    """What do models with and without the look-ahead mask learn?"""

    model_config = ConfigDict(extra="forbid")

    source: Text = "The dog sees the cat."


class BeamsQuestion(Question):
    """How did the search find it?"""

    beam: Beam = 4
