"""NanoDet and PicoDet: known boxes, as distributions of distances, come back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.errors import InputError
from tests.support.decoding import decode, guess

SIZE = (128, 64)
LABELS = ("cat", "dog", "cow")
BOXES = [(10.0, 12.0, 30.0, 40.0), (60.0, 4.0, 120.0, 60.0)]


def levels(strides: Sequence[int], offset: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Scores and distributions of each level, with the boxes in a cell of the second and third one."""
    cells = [(64 // stride) * (128 // stride) for stride in strides]
    scores = [np.zeros((1, count, 3), np.float32) for count in cells]
    bins = [np.zeros((1, count, 4, 8), np.float32) for count in cells]
    for level, number, (left, top, right, bottom) in ((1, 1, BOXES[0]), (2, 2, BOXES[1])):
        stride = strides[level]
        column, row = int((left + right) / 2 / stride), int((top + bottom) / 2 / stride)
        cell = row * (128 // stride) + column
        x, y = (column + offset) * stride, (row + offset) * stride
        for side, distance in enumerate((x - left, y - top, right - x, bottom - y)):
            # All of the probability in the two bins around the distance.
            below = int(distance / stride)
            weight = distance / stride - below
            bins[level][0, cell, side] = -50
            bins[level][0, cell, side, below : below + 2] = np.log([1 - weight + 1e-9, weight + 1e-9])
        scores[level][0, cell, number] = 0.5 + 0.1 * number
    return scores, [array.reshape(1, -1, 32) for array in bins]


def pairs(strides: Sequence[int]) -> dict[str, np.ndarray]:
    scores, distances = levels(strides, 0.5)
    return {str(number): array for number, array in enumerate([*scores, *distances])}


def single() -> dict[str, np.ndarray]:
    scores, distances = levels((8, 16, 32, 64), 0)
    return {"output": np.concatenate([np.concatenate(scores, 1), np.concatenate(distances, 1)], 2)}


@pytest.mark.parametrize(
    ("family", "outputs"),
    [("nanodet", pairs((8, 16, 32))), ("picodet", pairs((8, 16, 32, 64))), ("nanodet-plus", single())],
)
def test_boxes_come_back(family: str, outputs: dict[str, np.ndarray]) -> None:
    result = decode(family, SIZE, outputs, LABELS)
    np.testing.assert_allclose(result.boxes, BOXES[::-1], atol=1e-3)
    np.testing.assert_allclose(result.scores, [0.7, 0.6], atol=1e-6)
    assert result.names == ["cow", "dog"]
    assert guess(SIZE, outputs, LABELS).decoder == family


def test_large_logits_do_not_overflow() -> None:
    outputs = pairs((8, 16, 32))
    outputs = {name: array + 1e4 * (array.shape[-1] == 32) for name, array in outputs.items()}
    np.testing.assert_allclose(decode("nanodet", SIZE, outputs, LABELS).boxes, BOXES[::-1], atol=0.2)


def test_nothing_in_sight() -> None:
    outputs = {name: np.zeros_like(array) for name, array in pairs((8, 16, 32)).items()}
    assert decode("nanodet", SIZE, outputs).boxes.shape == (0, 4)


def test_names_the_shapes_wanted() -> None:
    with pytest.raises(InputError, match=r"\[1, 128, classes\] and \[1, 128, 32\], .* or \[1, 168, classes \+ 32\]"):
        decode("nanodet", SIZE, {"out": np.zeros((1, 100, 35), np.float32)})
