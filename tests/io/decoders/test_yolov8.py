"""YOLOv8's columns, rows and maps, with masks, points and turned boxes: known answers come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import candidates, complete_card, make_decoder
from pipeline.picture.geometry import Geometry

SIZE = (96, 64)
LEVELS = ((8, 8, 12), (16, 4, 6), (32, 2, 3))
"""Stride, rows and columns."""

CELLS = 8 * 12 + 4 * 6 + 2 * 3
LABELS = ("cat", "dog")
KNOWN = [(10, 12, 30, 40, 0.1, 0.9), (50, 8, 90, 60, 0.8, 0.2), (11, 12, 31, 40, 0.3, 0.7)]
"""Left, top, right, bottom and scores; the third is the first once more."""


def interface(*shapes: Sequence[int], labels: Sequence[str] = LABELS) -> ModelInterface:
    outputs = [TensorSpec(f"out{number}", tuple(shape), "float32") for number, shape in enumerate(shapes)]
    return ModelInterface(SIZE, outputs, labels)


def decode(arrays: Sequence[np.ndarray], family: str = "yolov8", **parameters: Any) -> Any:
    model = interface(*(array.shape for array in arrays))
    outputs = {spec.name: array for spec, array in zip(model.outputs, arrays, strict=True)}
    return make_decoder(ModelCard(decoder=family, parameters=parameters), model)(outputs)


def columns(extras: Sequence[Sequence[float]] = ((), (), ())) -> np.ndarray:
    """Return the output of an exported model."""
    array = np.zeros((1, 6 + len(extras[0]), CELLS), np.float32)
    array[0, 0] = np.linspace(4, SIZE[0] - 4, CELLS)
    for number, ((left, top, right, bottom, *scores), further) in enumerate(zip(KNOWN, extras, strict=True)):
        box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        array[0, :, 5 * number] = [*box, *scores, *further]
    return array


def rows(extras: Sequence[Sequence[float]] = ((), ()), *, centres: bool = False) -> np.ndarray:
    """Return the output of an end-to-end model."""
    array = np.zeros((1, 25, 6 + len(extras[0])), np.float32)
    for number, ((left, top, right, bottom, *scores), further) in enumerate(zip(KNOWN, extras, strict=False)):
        box: list[float] = [left, top, right, bottom]
        if centres:
            box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        array[0, number] = [*box, max(scores), scores.index(max(scores)), *further]
    return array


def maps(bins: int, *, logits: bool = True) -> list[np.ndarray]:
    """Return the maps [1, 4 * bins + 2, rows, columns] of a model that was cut before the decoding."""
    arrays = [np.full((1, 4 * bins + 2, rows, columns), -9 if logits else 0, np.float32) for _, rows, columns in LEVELS]
    for number, (left, top, right, bottom, *scores) in enumerate(KNOWN):
        stride, _, _ = LEVELS[number]
        x, y = (left + right) / 2 / stride, (top + bottom) / 2 / stride
        column, row = int(x), int(y)
        x, y = column + 0.5, row + 0.5
        sides = np.array([x - left / stride, y - top / stride, right / stride - x, bottom / stride - y])
        values = sides
        if bins > 1:
            # A distribution over the two integers beside a distance has this mean.
            below = np.floor(sides).astype(int)
            shares = np.zeros((4, bins))
            shares[range(4), below], shares[range(4), below + 1] = 1 - (sides - below), sides - below
            values = np.log(shares + 1e-9)
        wanted = np.log(np.divide(scores, np.subtract(1, scores))) if logits else scores
        arrays[number][0, :, row, column] = [*np.ravel(values), *wanted]
    return arrays


def check(result: Any) -> None:
    np.testing.assert_allclose(result.boxes, [box[:4] for box in KNOWN[:2]], atol=1e-3)
    np.testing.assert_allclose(result.scores, [0.9, 0.8], atol=1e-5)
    assert result.names == ["dog", "cat"]


def test_columns() -> None:
    check(decode([columns()]))
    check(decode([columns().transpose(0, 2, 1)]))


def test_columns_in_fractions() -> None:
    array = columns()
    array[0, :4] /= np.array([*SIZE, *SIZE])[:, None]
    check(decode([array]))
    check(decode([array], pixels=False))


def test_rows_are_final() -> None:
    check(decode([rows()]))
    doubled = rows()
    doubled[0, 2] = doubled[0, 0]
    assert decode([doubled]).scores.tolist() == pytest.approx([0.9, 0.9, 0.8])
    assert len(decode([doubled], most=2)) == 2


@pytest.mark.parametrize("bins", [1, 16])
@pytest.mark.parametrize("form", ["one map", "two maps", "channels last", "three maps"])
def test_maps(bins: int, form: str) -> None:
    arrays = maps(bins)
    if form == "channels last":
        arrays = [array.transpose(0, 2, 3, 1) for array in arrays]
    elif form != "one map":
        parts = [[array[:, : 4 * bins], array[:, 4 * bins :]] for array in arrays]
        # Behind these, some exporters have the sum of the scores.
        parts = [[*part, part[1].sum(1, keepdims=True)][: 3 if form == "three maps" else 2] for part in parts]
        arrays = [array for part in parts for array in part]
    check(decode(arrays))
    card = complete_card(ModelCard(task="detect"), interface(*(array.shape for array in arrays)))
    assert card.decoder == "yolov8"


def test_maps_with_sigmoids_in_the_model() -> None:
    check(decode(maps(16, logits=False)))


def test_numbers_of_a_side_without_labels() -> None:
    shapes = [array.shape for array in maps(1)]
    model = interface(*shapes, labels=())
    with pytest.raises(InputError, match="the decoder 'yolov8' takes"):
        make_decoder(ModelCard(decoder="yolov8"), model)
    outputs = {spec.name: array for spec, array in zip(model.outputs, maps(1), strict=True)}
    result: Any = make_decoder(ModelCard(decoder="yolov8", parameters={"bins": 1}), model)(outputs)
    np.testing.assert_allclose(result.boxes, [box[:4] for box in KNOWN[:2]], atol=1e-3)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("form", ["columns", "rows"])
def test_masks(form: str, last: bool) -> None:
    prototypes = np.full((1, 3, 16, 24), -1, np.float32)
    # The first prototype is the upper half, the second the left one.
    prototypes[0, 0, :8], prototypes[0, 1, :, :12] = 1, 1
    weights = [[1, 0, 0], [0, 2, 0], [0, 0, 1]]
    output = columns(weights) if form == "columns" else rows(weights[:2])
    result = decode([output, prototypes.transpose(0, 2, 3, 1) if last else prototypes], "yolov8-seg")
    check(result)
    masks = result.to_picture(Geometry(*SIZE, 0, 0, 1, 1, SIZE), SIZE).masks
    assert (masks.dtype, masks.shape) == (np.dtype(bool), (2, 64, 96))
    # Inside of the boxes, the upper half, which ends at 32, and the left one, before which the second box begins at 48.
    expected = np.zeros_like(masks)
    expected[0, 12:32, 10:30] = True
    assert (masks == expected).all()


@pytest.mark.parametrize("form", ["columns", "rows"])
@pytest.mark.parametrize("numbers", [2, 3])
@pytest.mark.parametrize("fractions", [False, True])
def test_points(form: str, numbers: int, fractions: bool) -> None:
    points = np.array([[[15, 20, 0.9], [25, 30, 0.1]], [[60, 10, 0.8], [70, 20, 0.7]]], np.float32)[..., :numbers]
    values = points.reshape(2, -1).tolist()
    output = columns([*values, values[0]]) if form == "columns" else rows(values)
    if fractions:
        output = output if form == "columns" else output.transpose(0, 2, 1)
        output[0, :4] /= np.array([*SIZE, *SIZE])[:, None]
        output[0, 6::numbers] /= SIZE[0]
        output[0, 7::numbers] /= SIZE[1]
        output = output if form == "columns" else output.transpose(0, 2, 1)
    result = decode([output], "yolov8-pose", points=[2, numbers])
    check(result)
    np.testing.assert_allclose(result.points[..., :numbers], points, atol=1e-3)
    assert result.points.shape == (2, 2, 3)
    assert numbers == 3 or (result.points[..., 2] == 1).all()


@pytest.mark.parametrize("form", ["columns", "rows"])
def test_turned_boxes(form: str) -> None:
    output = columns([[0.5], [-0.25], [0.5]]) if form == "columns" else rows([[0.5], [-0.25]], centres=True)
    result = decode([output], "yolov8-obb")
    check(result)
    np.testing.assert_allclose(result.angles, [0.5, -0.25])
    # A quarter of a turn makes other boxes of those that are longer than wide.
    output = columns([[0.0], [0.0], [np.pi / 2]])
    assert len(decode([output], "yolov8-obb", iou=0.9)) == 3
    output[0, 6] = 0
    assert len(decode([output], "yolov8-obb", iou=0.9)) == 2


def test_of_turned_boxes_losers_suppress_as_well() -> None:
    output = columns([[0.0]] * 3)
    output[0, 4:6] = 0
    for number, (x, score) in enumerate([(20, 0.9), (22.5, 0.8), (25, 0.7)]):
        output[0, :, number] = [x, 20, 20, 20, score, 0, 0]
    assert decode([output], "yolov8-obb", iou=0.8).scores.tolist() == pytest.approx([0.9])
    assert len(decode([output], "yolov8-obb", iou=0.95)) == 3


@pytest.mark.parametrize("family", ["yolov8", "yolov8-obb"])
def test_thousands_of_boxes(family: str) -> None:
    random = np.random.default_rng(0)
    size, cells = (640, 640), 8400
    output = np.zeros((1, 6 + (family == "yolov8-obb"), cells), np.float32)
    output[0, :2] = random.uniform(10, 630, (2, cells))
    output[0, 2:4] = 6
    output[0, 4] = random.uniform(0.3, 1, cells)
    model = ModelInterface(size, [TensorSpec("out", output.shape, "float32")], LABELS)
    result: Any = make_decoder(ModelCard(decoder=family, parameters={"most": 1000}), model)({"out": output})
    assert len(result) == 1000
    assert (np.diff(result.scores) <= 0).all()


@pytest.mark.parametrize("score", [0.0, 0.25, np.nan])
def test_nothing_seen(score: float) -> None:
    output = columns([[0.5]] * 3)
    output[0, 4:6] = score
    result = decode([output], "yolov8-obb")
    assert (result.boxes.shape, result.angles.shape) == ((0, 4), (0,))
    result = decode([output, np.zeros((1, 1, 16, 24), np.float32)], "yolov8-seg")
    assert result.masks.shape == (0, 16, 24)
    assert result.to_picture(Geometry(*SIZE, 0, 0, 1, 1, SIZE), SIZE).masks.shape == (0, 64, 96)


@pytest.mark.parametrize(
    ("shapes", "labels", "family", "parameters"),
    [
        ([(1, 84, CELLS)], 80, "yolov8", {}),
        ([(1, 84, CELLS)], 0, "yolov8", {}),
        ([(1, CELLS, 84)], 80, "yolov8", {}),
        ([(1, 84, CELLS)], 79, "", {}),
        ([(1, 85, CELLS)], 80, "yolov8-obb", {}),
        ([(1, 20, CELLS)], 0, "yolov8-obb", {}),
        ([(1, 7, 300)], 15, "", {}),
        ([(1, 300, 7)], 15, "yolov8-obb", {}),
        ([(1, 56, CELLS)], 1, "yolov8-pose", {"points": [17, 3]}),
        ([(1, 56, CELLS)], 0, "yolov8-pose", {"points": [17, 3]}),
        ([(1, 300, 57)], 1, "yolov8-pose", {"points": [17, 3]}),
        ([(1, 14, CELLS)], 2, "yolov8-pose", {"points": [4, 2]}),
        ([(1, 116, CELLS), (1, 32, 16, 24)], 80, "yolov8-seg", {}),
        ([(1, 116, CELLS), (1, 16, 24, 32)], 0, "yolov8-seg", {}),
        ([(1, 32, 16, 24), (1, 300, 38)], 80, "yolov8-seg", {}),
        ([(1, 117, CELLS), (1, 32, 16, 24)], 80, "", {}),
        ([(1, 7, CELLS)], 0, "", {}),
        ([(1, 144, 8, 12), (1, 144, 4, 6), (1, 144, 2, 3)], 0, "yolov8", {}),
        ([(1, 84, 8, 12), (1, 84, 4, 6), (1, 84, 2, 3)], 80, "yolov8", {}),
        ([(1, 84, 8, 12), (1, 84, 4, 6), (1, 84, 2, 3)], 0, "", {}),
        ([(1, 84, 8, 12), (1, 84, 4, 6)], 80, "", {}),
        ([(1, 1000)], 1000, "classes", {}),
    ],
)
def test_recognised(shapes: list[Sequence[int]], labels: int, family: str, parameters: Mapping[str, Any]) -> None:
    model = interface(*shapes, labels=[f"thing {number}" for number in range(labels)])
    card = complete_card(ModelCard(), model)
    assert (card.decoder, card.parameters) == (family, parameters)


def test_ambiguous_without_labels_but_not_with_a_task() -> None:
    model = interface((1, 10, CELLS), labels=())
    assert set(candidates(model)) == {"yolov8", "yolov8-obb"}
    model = interface((1, 11, CELLS), labels=())
    assert set(candidates(model)) == {"yolov8", "yolov8-obb", "yolov8-pose"}
    card = complete_card(ModelCard(task="pose"), model)
    assert (card.decoder, card.parameters) == ("yolov8-pose", {"points": [2, 3]})


@pytest.mark.parametrize(
    ("family", "shape", "parameters", "message"),
    [
        (
            "yolov8",
            (1, 6, 100),
            {},
            r"takes \[1, 4 \+ classes, each cell of strides 8, 16, 32 of 96x64\] or \[1, boxes",
        ),
        ("yolov8-seg", (1, 84, CELLS), {}, "an output of boxes and one of prototypes"),
        ("yolov8-pose", (1, 56, CELLS), {"points": [17, 4]}, "points=17,4; it needs their number, and 2 or 3"),
        ("yolov8-obb", (1, 5, CELLS), {}, r"takes \[1, 4 \+ classes \+ 1, each cell"),
    ],
)
def test_outputs_that_do_not_fit(family: str, shape: Sequence[int], parameters: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_decoder(ModelCard(decoder=family, parameters=parameters), interface(shape))
