"""YOLOv5's rows and maps: known boxes encoded by its formulas come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import candidates, complete_card, make_decoder

SIZE = (96, 64)
LEVELS = ((8, 8, 12), (16, 4, 6), (32, 2, 3))
"""Stride, rows and columns."""

BOXES = 3 * (8 * 12 + 4 * 6 + 2 * 3)
ANCHORS = [10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326]
LABELS = ("cat", "dog")

KNOWN = [(10, 12, 30, 40, 0.9, 0.1, 0.9), (50, 8, 90, 60, 0.8, 0.95, 0.2)]
"""Left, top, right, bottom, objectness and scores."""


def interface(*shapes: tuple[int, ...], labels: tuple[str, ...] = LABELS) -> ModelInterface:
    return ModelInterface(SIZE, [TensorSpec(f"out{n}", shape, "float32") for n, shape in enumerate(shapes)], labels)


def decode(model: ModelInterface, arrays: list[np.ndarray], **parameters: Any) -> Any:
    outputs = {spec.name: array for spec, array in zip(model.outputs, arrays, strict=True)}
    return make_decoder(ModelCard(decoder="yolov5", parameters=parameters), model)(outputs)


def rows(*, fractions: bool = False) -> np.ndarray:
    """Return the output of an exported model."""
    array = np.zeros((1, BOXES, 7), np.float32)
    array[0, :, 0] = np.linspace(4, SIZE[0] - 4, BOXES)
    for number, (left, top, right, bottom, *scores) in enumerate(KNOWN):
        array[0, 7 * number] = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top, *scores]
    if fractions:
        array[0, :, :4] /= [*SIZE, *SIZE]
    return array


def logit(value: Any) -> Any:
    return np.log(np.asarray(value) / (1 - np.asarray(value)))


def maps() -> list[np.ndarray]:
    """Return the maps [1, 3, rows, columns, 7] of a model that was cut before the decoding."""
    arrays = [np.full((1, 3, rows, columns, 7), -9, np.float32) for _, rows, columns in LEVELS]
    for number, (left, top, right, bottom, *scores) in enumerate(KNOWN):
        # The first box in the second level, by its second anchor; the second in the third.
        level, anchor = number + 1, 1
        stride = LEVELS[level][0]
        x, y = (left + right) / 2 / stride, (top + bottom) / 2 / stride
        column, row = int(x), int(y)
        width, height = ANCHORS[6 * level + 2 * anchor :][:2]
        sizes = np.sqrt([(right - left) / width, (bottom - top) / height]) / 2
        place = [(x - column + 0.5) / 2, (y - row + 0.5) / 2]
        arrays[level][0, anchor, row, column] = logit([*place, *sizes, *scores])
    return arrays


def flat_maps() -> list[np.ndarray]:
    """Return the maps as [1, 3 * 7, rows, columns]."""
    return [array.transpose(0, 1, 4, 2, 3).reshape(1, -1, *array.shape[2:4]) for array in maps()]


def check(result: Any) -> None:
    np.testing.assert_allclose(result.boxes, [box[:4] for box in KNOWN], atol=1e-3)
    np.testing.assert_allclose(result.scores, [0.81, 0.76], atol=1e-5)
    assert result.names == ["dog", "cat"]


@pytest.mark.parametrize("fractions", [False, True])
def test_rows(fractions: bool) -> None:
    model = interface((1, BOXES, 7))
    check(decode(model, [rows(fractions=fractions)]))
    check(decode(model, [rows(fractions=fractions)], pixels=not fractions))


def test_older_exports_have_maps_beside_the_rows() -> None:
    arrays = [rows(), *maps()]
    model = interface(*(array.shape for array in arrays))
    check(decode(model, arrays))
    assert complete_card(ModelCard(), model).decoder == "yolov5"


def test_maps() -> None:
    arrays = flat_maps()
    # The order of the outputs is the exporter's.
    arrays = arrays[::-1]
    model = interface(*(array.shape for array in arrays))
    check(decode(model, arrays))
    assert complete_card(ModelCard(), model).decoder == "yolov5"


@pytest.mark.parametrize("value", [-9.0, -1e4, np.nan])
def test_nothing_seen(value: float) -> None:
    arrays = [np.full_like(array, value) for array in flat_maps()]
    assert len(decode(interface(*(array.shape for array in arrays)), arrays)) == 0


def test_recognised_by_three_rows_for_each_cell() -> None:
    card = complete_card(ModelCard(), interface((1, BOXES, 7)))
    assert (card.decoder, card.task) == ("yolov5", "detect")
    assert card.origins["decoder"] == (
        "guess: its output [1, 378, 7] has three rows for each cell of strides 8, 16, 32 of 96x64"
    )
    # Without labels, only 80 classes are certain.
    assert not candidates(interface((1, BOXES, 7), labels=()))["yolov5"].certain
    assert candidates(interface((1, BOXES, 85), labels=()))["yolov5"].certain
    assert "yolov5" not in candidates(interface((1, BOXES + 3, 7)))


@pytest.mark.parametrize(
    ("shape", "parameters", "message"),
    [
        ((1, 100, 7), {}, r"takes \[1, 3 boxes for each cell of strides 8, 16, 32 of 96x64, 5 \+ classes\]"),
        ((1, 21, 8, 12), {"strides": [8], "anchors": [1, 2]}, "has 2 numbers of anchors; 1 strides need 6"),
    ],
)
def test_outputs_that_do_not_fit(shape: tuple[int, ...], parameters: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_decoder(ModelCard(decoder="yolov5", parameters=parameters), interface(shape))
