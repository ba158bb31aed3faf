"""Images as sequences: patches (Dosovitskiy et al. 2021), or a convolutional stem over the image.

A grid holds an image as the pixels of its patches, row by row from the top left, after one position
for the class token if there is one. All rows of such a grid hold one image each.
"""

from itertools import pairwise

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn

from attendo.config import AugmentationConfig, ImageConfig
from attendo.nn.augmentation import augment_images
from attendo.nn.embedding import GridEmbedding
from attendo.nn.grid import Grid


def to_patches(images: Shaped[Tensor, "R C H W"], patch: int) -> Shaped[Tensor, "R patches pixels"]:
    """Cut images into patches, row by row."""
    cut = images.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))  # (R, C, rows, P, columns, P)
    patches: Tensor = cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    return patches


def to_images(
    patches: Shaped[Tensor, "R patches pixels"], image: ImageConfig
) -> Shaped[Tensor, "R C H W"]:
    """Join patches to images again."""
    n = image.size // image.patch
    cut = patches.unflatten(2, (image.channels, image.patch, image.patch)).unflatten(1, (n, n))
    images: Tensor = cut.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)
    return images


class ImageEmbedding(GridEmbedding):
    """Patches to vectors; the class token, if there is one, is a learned vector.

    In training it changes the images first, as a recipe says.
    """

    def __init__(
        self,
        image: ImageConfig,
        augmentation: AugmentationConfig,
        d_model: int,
        *,
        class_token: bool = False,
    ) -> None:
        super().__init__()
        self.image, self.augmentation = image, augmentation
        self.class_token = nn.Parameter(0.02 * torch.randn(d_model)) if class_token else None
        if image.stem == "convolution":
            self.stem: nn.Module = ConvolutionalStem(image, d_model)
        else:
            self.stem = nn.Linear(image.channels * image.patch**2, d_model)

    def embed(self, grid: Grid) -> Float[Tensor, "R T D"]:
        """Return the embeddings of the patches of each row."""
        embedded: Tensor = self(as_numbers(grid.ids))
        return embedded

    def forward(self, pixels: Float[Tensor, "R T pixels"]) -> Float[Tensor, "R T D"]:
        """Embed pixels from -1 to 1."""
        if self.class_token is None:
            return self._embed(pixels)
        patches = self._embed(pixels[:, 1:])
        first = self.class_token.to(patches.dtype).expand(len(patches), 1, -1)
        return torch.cat((first, patches), dim=1)

    def _embed(self, patches: Float[Tensor, "R N pixels"]) -> Float[Tensor, "R N D"]:
        images = to_images(patches, self.image)
        if self.training:
            images = augment_images(images, self.augmentation)
        is_convolved = isinstance(self.stem, ConvolutionalStem)
        embedded: Tensor = self.stem(
            images if is_convolved else to_patches(images, self.image.patch)
        )
        return embedded


def as_numbers(pixels: UInt8[Tensor, "*R"] | Float[Tensor, "*R"]) -> Float[Tensor, "*R"]:
    """Return pixels as numbers from -1 to 1; augmented ones are numbers already."""
    return pixels if pixels.is_floating_point() else pixels.float() / 127.5 - 1


class ConvolutionalStem(nn.Module):
    """Convolutions that halve the image until one pixel is left of each patch.

    Hassani et al. 2021 (compact convolutional transformers) and Xiao et al. 2021: neighbouring
    patches overlap, and a small model learns strokes and edges from fewer images.
    """

    def __init__(self, image: ImageConfig, d_model: int) -> None:
        super().__init__()
        n_halvings = image.patch.bit_length() - 1
        widths = [max(8, d_model >> (n_halvings - k)) for k in range(n_halvings)] + [d_model]
        self.first = nn.Conv2d(image.channels, widths[0], 3, padding=1)
        self.halvings = nn.ModuleList(
            nn.Sequential(
                ConvolutionalBlock(before),
                nn.Conv2d(before, after, 3, stride=2, padding=1),
            )
            for before, after in pairwise(widths)
        )
        self.last = ConvolutionalBlock(d_model)

    def forward(self, images: Float[Tensor, "R C H W"]) -> Float[Tensor, "R N D"]:
        """Return a vector for each patch."""
        x = self.first(images.contiguous(memory_format=torch.channels_last))
        for halving in self.halvings:
            x = halving(x)
        embedded: Tensor = self.last(x).flatten(2).mT
        return embedded


class ConvolutionalBlock(nn.Module):
    """Two convolutions around which a residual connection goes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Norms over groups of channels: unlike batch norms they do the same alone and in a batch.
        n_groups = next(n for n in (8, 4, 2, 1) if width % n == 0)
        last = nn.Conv2d(width, width, 3, padding=1, bias=False)
        nn.init.zeros_(last.weight)  # the block begins as the identity
        self.layers = nn.Sequential(
            nn.GroupNorm(n_groups, width),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.GroupNorm(n_groups, width),
            nn.GELU(),
            last,
        )

    def forward(self, x: Float[Tensor, "R D H W"]) -> Float[Tensor, "R D H W"]:
        """Add what the convolutions find."""
        added: Tensor = x + self.layers(x)
        return added
