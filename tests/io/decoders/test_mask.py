from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import candidates, complete_card, make_decoder
from pipeline.io.results import Mask
from pipeline.picture.geometry import fit


def interface(shape: Sequence[int], dtype: str = "float32", labels: Sequence[str] = ()) -> ModelInterface:
    return ModelInterface((32, 16), [TensorSpec("y", tuple(shape), dtype)], labels)


def decode(array: np.ndarray, labels: Sequence[str] = (), **parameters: object) -> np.ndarray:
    """Return the classes at the size of the input."""
    model = interface(array.shape, str(array.dtype), labels)
    mask = make_decoder(ModelCard(decoder="mask", parameters=parameters), model)({"y": array})
    mask = mask.to_picture(fit("stretch", (32, 16), (32, 16)), (32, 16))
    assert isinstance(mask, Mask)
    assert mask.classes is not None
    assert (mask.classes.dtype, mask.classes.shape) == (np.dtype(np.uint8), (16, 32))
    return mask.classes


CLASSES = np.repeat(np.repeat(np.arange(4).reshape(2, 2), 8, axis=0), 16, axis=1)
SCORES = (CLASSES[..., None] == np.arange(4)).astype(np.float32)[None]


@pytest.mark.parametrize("array", [SCORES, SCORES.transpose(0, 3, 1, 2), 5 * SCORES - 9])
def test_the_largest_score_is_the_class_in_any_layout(array: np.ndarray) -> None:
    np.testing.assert_array_equal(decode(np.ascontiguousarray(array)), CLASSES)


@pytest.mark.parametrize("shape", [(1, 16, 32), (1, 1, 16, 32), (1, 16, 32, 1), (16, 32)])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_classes_that_the_network_has_chosen_stay(shape: tuple[int, ...], dtype: str) -> None:
    np.testing.assert_array_equal(decode(CLASSES.reshape(shape).astype(dtype)), CLASSES)


def test_chosen_classes_are_enlarged_without_numbers_between() -> None:
    small = np.array([[0, 20] * 8] * 8, np.int64)[None]
    np.testing.assert_array_equal(decode(small), np.repeat(np.repeat(small[0], 2, axis=0), 2, axis=1))


def test_a_single_score_has_a_threshold_and_its_logits_are_recognised() -> None:
    inside = CLASSES % 2 == 1
    scores = np.where(inside, 0.6, 0.4).astype(np.float32)[None, ..., None]
    np.testing.assert_array_equal(decode(scores), inside)
    assert not decode(scores, threshold=0.7).any()
    np.testing.assert_array_equal(decode(np.where(inside, 3, -2).astype(np.float32)[None, None]), inside)


@pytest.mark.parametrize(
    ("model", "certain"),
    [
        (interface((1, 16, 32), "int64"), True),
        (interface((1, 16, 32, 21)), True),
        (interface((1, 2, 16, 32)), True),
        (interface((1, 8, 8, 16), labels="abcdefgh"), True),
        # Also maps of key points, text or depth.
        (interface((1, 16, 32, 1)), False),
        (interface((1, 6, 8, 16)), False),
        # A picture, a square map over a wide input, and no map.
        (interface((1, 3, 16, 32)), None),
        (interface((1, 4, 16, 16)), None),
        (interface((1, 1000)), None),
    ],
)
def test_a_mask_is_recognised_by_its_shape(model: ModelInterface, certain: bool | None) -> None:
    guess = candidates(model).get("mask")
    assert (None if guess is None else guess.certain) == certain
    assert not certain or complete_card(ModelCard(), model).decoder == "mask"


def test_a_map_that_may_also_be_text_is_left_open() -> None:
    model = ModelInterface((64, 32), [TensorSpec("y", (1, 1, 32, 64))])
    assert list(candidates(model)) == ["mask", "text-boxes"]
    assert complete_card(ModelCard(), model).decoder == ""


def test_what_is_no_mask_is_refused() -> None:
    with pytest.raises(InputError, match=r"no output is a map over the input of 32x16; there are y \[1, 1000\]"):
        make_decoder(ModelCard(decoder="mask"), interface((1, 1000)))
    with pytest.raises(InputError, match="no output 'z'; there are y"):
        make_decoder(ModelCard(decoder="mask", parameters={"output": "z"}), interface((1, 16, 32)))
    with pytest.raises(InputError, match="2 labels for the 4 classes of 'y'"):
        decode(SCORES, ["a", "b"])
