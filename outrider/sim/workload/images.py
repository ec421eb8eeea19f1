"""Which image a request of a workload gets: images, and the share of requests of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from outrider.core.model import Image

# The thesis' images: "600 MB", where its simulator counts 1 MB as 10**6 bytes.
THESIS_IMAGE_BYTES = 600 * 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageShares:
    """Images and their weights; a weight of 10 is drawn ten times as often as one of 1."""

    images: tuple[Image, ...]
    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.images or len(self.images) != len(self.weights):
            raise ValueError(f"{len(self.images)} images and {len(self.weights)} weights")
        if min(self.weights) < 0 or not any(self.weights):
            raise ValueError("weights cannot be negative, and one must be positive")

    def draw(self, random: Random) -> Image:
        return random.choices(self.images, self.weights)[0]

    def draws(self, random: Random) -> Iterator[Image]:
        """An endless supply, for instance to give each job of a log an image."""
        while True:
            yield self.draw(random)


def uniform_images(count: int, *, size_bytes: int = THESIS_IMAGE_BYTES) -> ImageShares:
    """`count` images of one size, each as popular as the others."""
    return _numbered((1,) * count, size_bytes)


def skewed_images(*, size_bytes: int = THESIS_IMAGE_BYTES) -> ImageShares:
    """Section 8.3 of the thesis: 7 images of 10 % each and 30 of 1 % each, of 600 MB."""
    return _numbered((10,) * 7 + (1,) * 30, size_bytes)


def shared_images(weights: tuple[int, ...], *, size_bytes: int = THESIS_IMAGE_BYTES) -> ImageShares:
    """An image for each weight."""
    return _numbered(weights, size_bytes)


def _numbered(weights: tuple[int, ...], size_bytes: int) -> ImageShares:
    width = len(str(len(weights)))
    images = tuple(
        Image(uri=f"image-{number:0{width}}", size_bytes=size_bytes) for number in range(1, len(weights) + 1)
    )
    return ImageShares(images=images, weights=weights)
