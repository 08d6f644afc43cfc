"""DETR's sets: known boxes come back, without a suppression."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import InputError
from tests.support.decoding import decode, guess

SIZE = (100, 50)
LABELS = ("cat", "dog")


def outputs(queries: int, classes: int) -> dict[str, np.ndarray]:
    """Two boxes at the same position."""
    logits = np.full((1, queries, classes), -9, np.float32)
    boxes = np.zeros((1, queries, 4), np.float32)
    boxes[0, [3, 7]] = (0.5, 0.4, 0.2, 0.4)
    logits[0, 3, 1], logits[0, 7, 0] = 5, 3
    return {"logits": logits, "pred_boxes": boxes}


def test_a_class_for_no_object() -> None:
    arrays = outputs(100, 3)
    arrays["logits"][..., 2] = 0
    result = decode("detr", SIZE, arrays, LABELS)
    np.testing.assert_allclose(result.boxes, [(40, 10, 60, 30)] * 2, atol=1e-4)
    np.testing.assert_allclose(result.scores, [1 / (1 + np.exp(-5)), 1 / (1 + np.exp(-3))], atol=1e-4)
    assert result.names == ["dog", "cat"]
    assert guess(SIZE, arrays, LABELS).decoder == "detr"


def test_a_score_per_class() -> None:
    arrays = outputs(300, 2)
    arrays["logits"][0, 3, 0] = 1
    result = decode("rtdetr", SIZE, arrays, LABELS)
    # One query may be of two classes.
    assert result.names == ["dog", "cat", "cat"]
    np.testing.assert_allclose(result.scores, 1 / (1 + np.exp(-np.array([5.0, 3.0, 1.0]))), atol=1e-6)
    assert guess(SIZE, arrays, LABELS).decoder == "rtdetr"
    assert len(decode("rtdetr", SIZE, arrays, LABELS, most=1)) == 1


def test_nothing_in_sight() -> None:
    arrays = {name: np.full_like(array, -9) for name, array in outputs(300, 2).items()}
    assert decode("rtdetr", SIZE, arrays).boxes.shape == (0, 4)


def test_names_the_shapes_wanted() -> None:
    with pytest.raises(InputError, match=r"'detr' takes \[1, queries, classes\] and \[1, queries, 4\]"):
        decode("detr", SIZE, {"logits": np.zeros((1, 100, 3), np.float32)})


def test_leaves_out_what_is_no_number() -> None:
    arrays = outputs(300, 2)
    arrays["pred_boxes"][0, 3, 0] = np.nan
    assert decode("rtdetr", SIZE, arrays, LABELS).names == ["cat"]


def test_names_of_80_classes_are_spread_over_the_91_categories_of_coco() -> None:
    arrays = outputs(100, 92)
    arrays["logits"][0, 3, 90], arrays["logits"][0, 7, 13] = 9, 9
    names = [f"name {number}" for number in range(80)]
    # A stop sign has number 13 of COCO's, and is the twelfth of its names; 90 is the last one.
    result = decode("detr", SIZE, arrays, names)
    assert sorted(result.names) == ["name 11", "name 79"]
    with pytest.raises(InputError, match="there are 79 labels for the 91 classes"):
        decode("detr", SIZE, arrays, names[:79])
