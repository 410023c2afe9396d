"""Where two pictures differ."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from pictures.compare import MARK, difference, store, stored

GREY = (100, 100, 100)


def grey(width: int = 20, height: int = 10) -> Image.Image:
    return Image.new("RGB", (width, height), GREY)


def test_a_picture_is_the_same_after_it_was_stored(tmp_path: Path) -> None:
    gradient = Image.merge("RGB", (Image.linear_gradient("L"),) * 3)
    store(gradient, tmp_path / "a.webp")
    assert difference(gradient, stored(tmp_path / "a.webp")) is None


def test_every_pixel_that_differs_is_counted_and_marked() -> None:
    taken = grey()
    taken.putpixel((3, 4), (100, 100, 101))
    taken.putpixel((7, 8), (0, 100, 100))
    found = difference(taken, grey())
    assert found is not None
    assert str(found) == "2 pixels differ, within 3,4 to 8,9"
    assert found.picture.getpixel((3, 4)) == found.picture.getpixel((7, 8)) == MARK
    assert found.picture.getpixel((0, 0)) != MARK


def test_what_is_within_the_tolerance_is_the_same() -> None:
    taken = grey()
    taken.putpixel((3, 4), (100, 140, 100))
    assert difference(taken, grey(), tolerance=40) is None
    assert difference(taken, grey(), tolerance=39) is not None


def test_pixels_that_only_one_of_them_has_differ() -> None:
    found = difference(grey(20, 12), grey(22, 10))
    assert found is not None
    assert found.num_pixels == 22 * 12 - 20 * 10
    assert found.box == (0, 0, 22, 12)
