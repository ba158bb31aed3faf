"""Classification of images: patches of pixels to a label (ViT, Dosovitskiy et al. 2021)."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import DataConfig, Recipe
from attendo.data.batches import Batch, Layout
from attendo.data.builtin import Sentence
from attendo.data.corpus import Vectors
from attendo.data.media.drawn import SHAPES
from attendo.data.media.images import LabelledImage, read_image
from attendo.data.readers import Record
from attendo.losses import Loss, linear_cross_entropy
from attendo.nn.augmentation import draw_mixture
from attendo.nn.patches import ImageEmbedding, as_numbers, to_images, to_patches
from attendo.tasks.media import Content, MediaClassification, Shown


class ImageClassification(MediaClassification):
    """An image to a label."""

    name: ClassVar[str] = "image-classification"
    models: ClassVar[str] = "classifiers of images"
    record_type: ClassVar[type[Any]] = LabelledImage
    columns: ClassVar[tuple[str, ...]] = ("image", "label", "file")
    inputs: ClassVar[tuple[str, ...]] = ("image",)
    command: ClassVar[tuple[str, ...]] = ("predict", "RUN", "image.png")
    examples: ClassVar[tuple[str, ...]] = tuple(f"drawn:{shape}-7" for shape in SHAPES)

    @classmethod
    def convert(cls, sentence: Sentence) -> Record:
        """Return a drawn shape for each sentence of the built-in corpus."""
        seed = zlib.crc32(sentence.source.encode())
        shape = SHAPES[seed % len(SHAPES)]
        return LabelledImage(f"drawn:{shape}-{seed}", shape)

    def read(self, reference: str) -> Content:
        """Read an image as patches."""
        pixels = torch.from_numpy(read_image(reference, self.recipe.image).copy())
        patches = to_patches(pixels.permute(2, 0, 1)[None], self.recipe.image.patch)[0]
        return patches.numpy()

    @property
    def vectors(self) -> Vectors:
        """Return the pixels of a patch."""
        return Vectors(self.recipe.image.channels * self.recipe.image.patch**2, "|u1")

    @classmethod
    def embedding(cls, recipe: Recipe) -> ImageEmbedding:
        """Build what embeds patches."""
        return ImageEmbedding(
            recipe.image,
            recipe.augmentation,
            recipe.model.d_model,
            class_token=recipe.model.pooling == "first",
        )

    def layout(self, data: DataConfig, batch_tokens: int) -> Layout:
        """Return how batches are laid out: an image in every row."""
        width = self.recipe.image.n_patches + self.has_class_token
        return replace(super().layout(data, batch_tokens), width=width)

    def select(
        self, model: Any, hidden: Float[Tensor, "R T D"], labels: Int[Tensor, "R T"]
    ) -> tuple[Float[Tensor, "R 1 D"], Int[Tensor, "R 1"]]:
        """Return the first position of every row, which has the label."""
        return hidden[:, :1], labels[:, :1]

    def loss(
        self,
        model: Any,
        batch: Batch,
        smoothing: float,
        agreement: float = 0.0,
        criterion: Callable[..., Loss] = linear_cross_entropy,
    ) -> Loss:
        """Return the loss of a batch, in training perhaps of images that are mixed in pairs."""
        alpha = self.recipe.augmentation.mixup
        if not (alpha and model.training and torch.is_grad_enabled()):
            return super().loss(model, batch, smoothing, agreement, criterion)
        grid = batch.inputs["image"]
        mixture = draw_mixture(len(grid.ids), alpha, grid.ids.device)
        mixed = {"image": grid._replace(ids=mixture.of(as_numbers(grid.ids)))}
        hidden, labels = self.select(model, self.hidden(model, mixed), batch.labels)
        own, partners = (
            criterion(hidden[None], model.output.weight, one, smoothing, 0.0, model.output.bias)
            for one in (labels, labels[mixture.partners])
        )
        return Loss(torch.lerp(partners.total, own.total, mixture.share), own.n_labels)

    def show(self, content: Content) -> Shown:
        """Return the pixels, and the row and column of each patch, from 1."""
        image = self.recipe.image
        pixels = to_images(torch.from_numpy(content)[None], image)[0].permute(1, 2, 0).numpy()
        n = image.size // image.patch
        names = [f"{row + 1},{column + 1}" for row in range(n) for column in range(n)]
        return Shown(pixels[..., 0] if image.channels == 1 else pixels, n, n, names)
