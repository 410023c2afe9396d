"""Where two pictures differ, pixel by pixel."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageChops

MARK = (255, 0, 0)


@dataclass(frozen=True)
class Difference:
    num_pixels: int
    box: tuple[int, int, int, int]
    """Left, top, right, bottom: all of them lie in there."""
    picture: Image.Image
    """What should be, faded, and in red what is not."""

    def __str__(self) -> str:
        left, top, right, bottom = self.box
        return f"{self.num_pixels} pixels differ, within {left},{top} to {right},{bottom}"


def opened(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def stored(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        return picture.convert("RGB")


def store(picture: Image.Image, path: Path) -> None:
    """Without loss, so that what is read back is what was taken."""
    picture.save(path, "WEBP", lossless=True, quality=100, method=6)


def difference(taken: Image.Image, wanted: Image.Image, tolerance: int = 0) -> Difference | None:
    """``None`` where no channel of any pixel is further off than ``tolerance``.

    Pixels that only one of the two has are different.
    """
    size = (max(taken.width, wanted.width), max(taken.height, wanted.height))
    mask = Image.new("L", size, 255)
    channels = ImageChops.difference(taken, wanted).split()  # of what both have
    furthest = channels[0]
    for channel in channels[1:]:
        furthest = ImageChops.lighter(furthest, channel)
    mask.paste(furthest.point([255 if value > tolerance else 0 for value in range(256)]))
    box = mask.getbbox()
    if box is None:
        return None
    white = Image.new("RGB", size, "white")
    faded = white.copy()
    faded.paste(wanted)
    faded = Image.blend(faded, white, 0.7)
    faded.paste(MARK, mask=mask)
    return Difference(mask.histogram()[255], box, faded)
