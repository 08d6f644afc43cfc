"""FastestDet's map: known boxes encoded by its formula come back."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import InputError
from tests.support.decoding import decode, guess

SIZE = (96, 64)
LABELS = ("cat", "dog")


def encode(*boxes: tuple[float, ...]) -> dict[str, np.ndarray]:
    """Return the map with each (left, top, right, bottom, objectness, class scores) in its centre's cell."""
    cells = np.zeros((7, 4, 6), np.float32)
    for left, top, right, bottom, *scores in boxes:
        x, y = (left + right) / 32, (top + bottom) / 32
        width, height = (right - left) / 96, (bottom - top) / 64
        values = [
            np.arctanh(x - int(x)),
            np.arctanh(y - int(y)),
            np.log(width / (1 - width)),
            np.log(height / (1 - height)),
        ]
        cells[:, int(y), int(x)] = [scores[0], *values, *scores[1:]]
    return {"758": cells[None]}


def test_boxes_come_back() -> None:
    result = decode("fastestdet", SIZE, encode((10, 12, 30, 40, 0.9, 0.1, 0.9), (50, 8, 90, 60, 1.0, 0.8, 0.2)), LABELS)
    np.testing.assert_allclose(result.boxes, [(50, 8, 90, 60), (10, 12, 30, 40)], atol=1e-3)
    np.testing.assert_allclose(result.scores, [0.8**0.4, 0.9], atol=1e-6)
    assert result.names == ["cat", "dog"]


def test_suppresses_across_classes() -> None:
    boxes = (10, 12, 30, 40, 0.9, 0.1, 0.9), (10, 20, 30, 52, 0.8, 0.9, 0.1)
    assert len(decode("fastestdet", SIZE, encode(*boxes), LABELS)) == 1
    assert len(decode("fastestdet", SIZE, encode(*boxes), LABELS, agnostic=False)) == 2


def test_nothing_in_sight() -> None:
    result = decode("fastestdet", SIZE, encode(), LABELS)
    assert result.boxes.shape == (0, 4)


def test_is_recognised_by_the_number_of_classes() -> None:
    card = guess(SIZE, encode(), LABELS)
    assert card.decoder == "fastestdet"
    assert card.preparation is not None
    assert card.preparation.channels == "bgr"


def test_names_the_shape_wanted() -> None:
    with pytest.raises(InputError, match=r"'fastestdet' takes \[1, 5 \+ classes, 4, 6\], .* 'out' \[1, 7, 8, 12\]"):
        decode("fastestdet", SIZE, {"out": np.zeros((1, 7, 8, 12), np.float32)})
