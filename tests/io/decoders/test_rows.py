"""Rows behind a suppression: as one table, or as separate outputs."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard
from pipeline.core.packed_value import CAPACITY
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import complete_card, make_decoder
from tests.support.decoding import decode, guess

SIZE = (100, 50)
ROWS = np.array([(10, 20, 30, 40, 0.5, 1), (1, 2, 3, 4, 0.9, 0), (0, 0, 0, 0, 0, 0), (5, 5, 9, 9, -1, -1)], np.float32)


@pytest.mark.parametrize("shape", [(4, 6), (1, 4, 6)])
def test_rows_by_score(shape: tuple[int, ...]) -> None:
    result = decode("rows", SIZE, {"boxes": ROWS.reshape(shape)}, ("cat", "dog"))
    np.testing.assert_array_equal(result.boxes, [(1, 2, 3, 4), (10, 20, 30, 40)])
    assert result.names == ["cat", "dog"]
    assert guess(SIZE, {"boxes": ROWS.reshape(shape)}).decoder == "rows"


def test_columns_in_another_order() -> None:
    # Rows of a batch, as YOLOv7's exporter has them.
    rows = np.array([[0, 0.1, 0.2, 0.3, 0.4, 1, 0.5]], np.float32)
    columns = ["image", "left", "top", "right", "bottom", "class", "score"]
    result = decode("rows", SIZE, {"output": rows}, columns=columns, fractions=True)
    np.testing.assert_allclose(result.boxes, [(10, 10, 30, 20)], atol=1e-5)
    assert (result.scores.tolist(), result.classes.tolist()) == ([0.5], [1])


def test_an_open_number_of_rows() -> None:
    interface = ModelInterface(SIZE, [TensorSpec("detections", (CAPACITY,), "uint8")], ("cat", "dog"))
    card = complete_card(ModelCard(), interface)
    assert card.decoder == "rows"
    read = make_decoder(card, interface)
    assert len(read({"detections": ROWS[None]})) == 2  # type: ignore[arg-type]
    assert len(read({"detections": ROWS[None, :0]})) == 0  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"rows of left, top, .* the output 'detections' of this frame is \[1, 3, 7\]"):
        read({"detections": np.zeros((1, 3, 7), np.float32)})


def test_columns_that_are_missing() -> None:
    with pytest.raises(InputError, match="score, class are missing"):
        decode("rows", SIZE, {"boxes": ROWS[:, :4]}, columns=["left", "top", "right", "bottom"])


def test_names_the_rows_wanted() -> None:
    with pytest.raises(
        InputError, match=r"'rows' takes rows of left, .*, such as \[1, 100, 6\], .* 'out' \[1, 9, 85\]"
    ):
        decode("rows", SIZE, {"out": np.zeros((1, 9, 85), np.float32)})


BOXES = np.array([[(0.2, 0.1, 0.8, 0.3), (0, 0, 1, 1), (0.5, 0.5, 0.6, 0.6)]], np.float32)
CLASSES, SCORES = np.array([[1, 0, 1]], np.float32), np.array([[0.8, 0.6, 0.9]], np.float32)
COUNT = np.array([2], np.float32)


@pytest.mark.parametrize(
    "outputs",
    [
        {"post": BOXES, "post:1": CLASSES, "post:2": SCORES, "post:3": COUNT},
        {"call:1": SCORES, "call:3": BOXES, "call:0": COUNT, "call:2": CLASSES},
        {"num_detections": COUNT, "detection_classes": CLASSES, "detection_scores": SCORES, "detection_boxes": BOXES},
    ],
)
def test_tflite_counts_from_the_top(outputs: dict[str, np.ndarray]) -> None:
    card = guess(SIZE, outputs)
    assert card.decoder == "lists"
    result = decode("lists", SIZE, outputs, ("cat", "dog"))
    # The third one is beyond the count.
    np.testing.assert_allclose(result.boxes, [(10, 10, 30, 40), (0, 0, 100, 50)], atol=1e-4)
    assert result.names == ["dog", "cat"]


def test_torchvision_has_pixels() -> None:
    outputs = {"boxes": BOXES[0] * 50, "labels": CLASSES[0], "scores": SCORES[0]}
    result = decode("lists", SIZE, outputs)
    np.testing.assert_allclose(result.boxes[1], (10, 5, 40, 15), atol=1e-4)


def test_outputs_by_name() -> None:
    outputs = {"a": BOXES, "b": CLASSES, "c": SCORES}
    assert not guess(SIZE, outputs).decoder
    assert len(decode("lists", SIZE, outputs, boxes="a", classes="b", scores="c")) == 3
    with pytest.raises(InputError, match=r"'lists' takes boxes \[1, N, 4\], classes and scores \[1, N\]"):
        decode("lists", SIZE, outputs)


def test_counts_the_lists() -> None:
    outputs = {"boxes": BOXES[0], "labels": CLASSES[0, :2], "scores": SCORES[0]}
    with pytest.raises(InputError, match="3 boxes have 3 scores and 2 classes"):
        decode("lists", SIZE, outputs)


def test_leaves_out_what_is_no_number() -> None:
    rows = np.array(
        [(np.nan, 2, 3, 4, 0.9, 0), (1, 2, 3, 4, np.nan, 0), (1, 2, 3, 4, 0.9, np.nan), (1, 2, 3, 4, 0.8, 1)]
    )
    assert decode("rows", SIZE, {"boxes": rows.astype(np.float32)}).facts()[0]["score"] == pytest.approx(0.8)
    assert len(decode("rows", SIZE, {"boxes": rows.astype(np.float32)})) == 1
