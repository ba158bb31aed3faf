"""Random changes of images in training, on the device of the model.

They draw from PyTorch's random numbers as dropout does, so a resumed run sees the same images as
one that was never interrupted.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from attendo.config import AugmentationConfig

COARSE = 5
"""Points of a side between which an elastic deformation is interpolated."""


def augment_images(
    images: Float[Tensor, "R C H W"], config: AugmentationConfig
) -> Float[Tensor, "R C H W"]:
    """Move, turn, stretch, bend and erase images, each in its own way.

    What comes in from outside has the value of the nearest edge.
    """
    if config.shift or config.rotation or config.scale or config.shear or config.elastic:
        grid = functional.affine_grid(
            affine_maps(len(images), config, images.device), list(images.shape), align_corners=False
        )
        if config.elastic:
            grid = grid + elastic_field(images, config.elastic)
        images = functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    return erase(images, config.erasing) if config.erasing else images


def affine_maps(n: int, config: AugmentationConfig, device: torch.device) -> Float[Tensor, "R 2 3"]:
    """Draw maps from places in the changed image to places in the original, from -1 to 1."""
    angle = _between(n, math.radians(config.rotation), device)
    cos, sin = angle.cos(), angle.sin()
    rotation = torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2)
    stretch = torch.diag_embed((1 + _between((n, 2), config.scale, device)).reciprocal())
    slant = torch.eye(2, device=device).repeat(n, 1, 1)
    slant[:, 0, 1] = _between(n, config.shear, device)
    shift = 2 * _between((n, 2, 1), config.shift, device)
    return torch.cat((rotation @ stretch @ slant, shift), dim=-1)


def elastic_field(images: Float[Tensor, "R C H W"], strength: float) -> Float[Tensor, "R H W 2"]:
    """Draw a smooth field of shifts (Simard et al. 2003): random ones on few points, interpolated.

    A strength of 0.1 shifts a point by a tenth of the size of the image, typically.
    """
    coarse = torch.randn(len(images), 2, COARSE, COARSE, device=images.device)
    size = list(images.shape[2:])
    field = functional.interpolate(coarse, size, mode="bicubic", align_corners=True)
    return 2 * strength * field.permute(0, 2, 3, 1)


def erase(images: Float[Tensor, "R C H W"], probability: float) -> Float[Tensor, "R C H W"]:
    """Set a rectangle of some images to the mean of the image (Zhong et al. 2020)."""
    n, _, height, width = images.shape
    device = images.device
    centre, half = torch.rand(2, n, device=device), 0.05 + 0.15 * torch.rand(2, n, device=device)
    rows = (torch.arange(height, device=device) + 0.5) / height
    columns = (torch.arange(width, device=device) + 0.5) / width
    is_in = ((rows - centre[0, :, None]).abs() < half[0, :, None])[:, :, None]
    is_in = is_in & ((columns - centre[1, :, None]).abs() < half[1, :, None])[:, None, :]
    is_in = is_in & (torch.rand(n, device=device) < probability)[:, None, None]
    return torch.where(is_in[:, None], images.mean(dim=(1, 2, 3), keepdim=True), images)


class Mixture(NamedTuple):
    """How the examples of a batch are mixed in pairs."""

    share: Float[Tensor, ""]
    """Of the example itself; the rest is its partner's."""
    partners: Int[Tensor, " R"]

    def of(self, values: Float[Tensor, "R ..."]) -> Float[Tensor, "R ..."]:
        """Mix the values of all examples with those of their partners."""
        mixed: Tensor = torch.lerp(values[self.partners], values, self.share.to(values.dtype))
        return mixed


def draw_mixture(n: int, alpha: float, device: torch.device) -> Mixture:
    """Draw the partners and, from Beta(α, α), the share of mix-up (Zhang et al. 2018)."""
    # A beta distribution as a ratio of gamma distributions; one share for all is a small tensor.
    gammas = torch._standard_gamma(torch.full((2,), alpha, device=device))
    share = gammas[0] / gammas.sum().clamp(min=1e-30)
    return Mixture(share, torch.rand(n, device=device).argsort())


def _between(
    shape: int | tuple[int, ...], most: float, device: torch.device
) -> Float[Tensor, "*shape"]:
    """Draw numbers from -most to most."""
    return most * (2 * torch.rand(shape, device=device) - 1)
