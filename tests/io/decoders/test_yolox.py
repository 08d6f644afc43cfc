"""YOLOX's rows: known boxes encoded by its formula come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard, Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import candidates, complete_card, make_decoder, parse_decoder

SIZE = (96, 64)
STRIDES = (8, 16, 32)
CELLS = 12 * 8 + 6 * 4 + 3 * 2


def interface(count: int = CELLS, fields: int = 7) -> ModelInterface:
    return ModelInterface(SIZE, [TensorSpec("output", (1, count, fields), "float32")], ("cat", "dog"))


def encode(boxes: Sequence[Sequence[float]], *, pixels: bool = False) -> dict[str, np.ndarray]:
    """Return the output with each (left, top, right, bottom, objectness, class scores) in its centre's cell.

    Levels are used in turn.
    """
    rows = np.zeros((CELLS, 7), np.float32)
    begins = (0, 12 * 8, 12 * 8 + 6 * 4)
    if pixels:
        # Centres of all cells, as such a network gives them.
        rows[:, 0] = np.linspace(4, SIZE[0] - 4, CELLS)
    for number, (left, top, right, bottom, objectness, *scores) in enumerate(boxes):
        level = number % 3
        stride = STRIDES[level]
        x, y = (left + right) / 2, (top + bottom) / 2
        column, row = int(x // stride), int(y // stride)
        values = [
            x / stride - column,
            y / stride - row,
            np.log((right - left) / stride),
            np.log((bottom - top) / stride),
        ]
        index = begins[level] + row * (SIZE[0] // stride) + column
        rows[index] = [*([x, y, right - left, bottom - top] if pixels else values), objectness, *scores]
    return {"output": rows[None]}


BOXES = [(10, 12, 30, 40, 0.9, 0.1, 0.9), (50, 8, 90, 60, 0.8, 0.95, 0.2), (11, 13, 31, 41, 0.7, 0.0, 0.9)]


def decode(outputs: Mapping[str, np.ndarray], **parameters: Any) -> Any:
    return make_decoder(ModelCard(decoder="yolox", parameters=parameters), interface())(outputs)


@pytest.mark.parametrize("pixels", [False, True])
@pytest.mark.parametrize("stated", [False, True])
def test_known_boxes(pixels: bool, stated: bool) -> None:
    result = decode(encode(BOXES, pixels=pixels), **({"pixels": pixels} if stated else {}))
    # The third is the first once more.
    np.testing.assert_allclose(result.boxes, [BOXES[0][:4], BOXES[1][:4]], atol=1e-3)
    np.testing.assert_allclose(result.scores, [0.81, 0.76], atol=1e-6)
    assert result.names == ["dog", "cat"]


def test_a_higher_threshold_of_suppression_leaves_both() -> None:
    assert len(decode(encode(BOXES), iou=0.95)) == 3


def test_classes_suppress_one_another_unless_told() -> None:
    boxes = [BOXES[0], BOXES[1], (*BOXES[2][:5], 0.9, 0.0)]
    assert decode(encode(boxes)).names == ["dog", "cat"]
    assert decode(encode(boxes), agnostic=False).names == ["dog", "cat", "cat"]


def test_at_most_so_many() -> None:
    assert len(decode(encode(BOXES), iou=0.95, most=2)) == 2


@pytest.mark.parametrize("objectness", [0.0, 0.3, np.nan])
def test_nothing_seen(objectness: float) -> None:
    result = decode(encode([(10, 12, 30, 40, objectness, 1.0, 1.0)]))
    assert result.boxes.shape == (0, 4)
    assert result.scores.shape == (0,)


def test_a_size_beyond_all_numbers_is_no_box() -> None:
    outputs = encode(BOXES[:1])
    outputs["output"][outputs["output"][..., 4] > 0.5, 2] = 1000
    assert len(decode(outputs)) == 0


def test_recognised_by_the_number_of_rows() -> None:
    card = complete_card(ModelCard(), interface())
    assert (card.decoder, card.task, card.parameters) == ("yolox", "detect", {"strides": [8, 16, 32]})
    assert card.preparation == Preparation(
        resize="letterbox", margin="corner", channels="bgr", scale=255, fill=114, rounding="down", sampling="opencv"
    )
    assert card.origins["decoder"] == (
        "guess: its output [1, 126, 7] has a row for each cell of strides 8, 16, 32 of 96x64"
    )


def test_strides_of_four_levels() -> None:
    four = interface(count=CELLS + 2 * 1)
    assert candidates(four)["yolox"].parameters == {"strides": [8, 16, 32, 64]}


def test_a_decoder_by_name_takes_its_parameters_from_the_outputs() -> None:
    name, parameters = parse_decoder("yolox:score=0.4")
    card = complete_card(ModelCard(decoder=name, parameters=parameters), interface(count=CELLS + 2 * 1))
    assert card.parameters == {"score": 0.4, "strides": [8, 16, 32, 64]}


def test_other_rows_are_not_recognised() -> None:
    assert "yolox" not in candidates(interface(count=CELLS + 1))
    assert "yolox" not in candidates(interface(fields=5))


def test_outputs_that_do_not_fit() -> None:
    name, parameters = parse_decoder("yolox:strides=8,16&score=0.4")
    with pytest.raises(InputError, match=r"takes \[1, 120, 5 \+ classes\] with strides 8, 16, for an input of 96x64"):
        make_decoder(ModelCard(decoder=name, parameters=parameters), interface())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yolox:score=2", r"the decoder 'yolox': score: expected float <= 1\.0"),
        ("yolox:most=0", r"the decoder 'yolox': .*>= 1"),
        ("yolox:scores=0.2", r"no parameter 'scores'; did you mean 'score'"),
        ("yolo:score=0.2", r"no decoder 'yolo'; did you mean 'yolox'"),
    ],
)
def test_wrong_parameters(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_decoder(text)
