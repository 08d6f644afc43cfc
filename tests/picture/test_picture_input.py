"""Inputs from pictures without any extra: NumPy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import InputError
from pipeline.picture.pixels import Pixels
from pipeline.picture.preparation import PictureInput, PreparationStage
from tests.support import media

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SAME = (1, media.HEIGHT, media.WIDTH, 3)
PICTURE = media.noise(1)[0]


def prepare(shape: tuple[int, ...], dtype: str = "float32", scales: Any = None, **rules: Any) -> np.ndarray:
    quantizations = [] if scales is None else [Quantization("x", (scales[0],), (scales[1],))]
    spec = TensorSpec("x", shape, dtype)
    return PictureInput(spec, Preparation(sampling="opencv", **rules), quantizations).prepare(PICTURE)[0]


@pytest.mark.parametrize("channels", ["rgb", "bgr"])
@pytest.mark.parametrize(("scale", "white"), [(None, 1), (1, 1), (255, 255)])
def test_values_from_0_to_white(scale: Any, white: int, channels: str) -> None:
    mean, std = ([value * white for value in values] for values in (MEAN, STD))
    colours = PICTURE[..., ::-1] if channels == "bgr" else PICTURE
    reference = (colours * (white / 255) - np.array(mean)) / np.array(std)
    array = prepare(SAME, mean=mean, std=std, scale=scale, channels=channels)
    np.testing.assert_allclose(array[0], reference, atol=1e-5)


def test_bytes_as_floats_are_exact() -> None:
    np.testing.assert_array_equal(prepare(SAME, scale=255)[0], PICTURE)


@pytest.mark.parametrize("order", ["nchw", "nhwc"])
def test_a_card_says_the_layout_where_the_shape_does_not(order: str) -> None:
    picture_input = PictureInput(TensorSpec("x", (1, 3, 8, 3)), Preparation(layout=order))
    extents = (3, 8, 3) if order == "nchw" else (3, 3, 8)
    layout = picture_input.layout
    assert (layout.channels, layout.height, layout.width) == extents
    with pytest.raises(InputError, match="channels, last, as"):
        PictureInput(TensorSpec("x", (1, 3, 8, 9)), Preparation(layout="nhwc"))


def test_a_letterbox_in_the_corner_has_its_margins_behind() -> None:
    array = prepare((1, 3, 40, 40), "uint8", resize="letterbox", margin="corner", fill=7)
    assert (array[:, :, 30:] == 7).all()
    assert (array[:, :, :30] != 7).any(axis=(0, 1)).all()


# As exporters of TFLite have them: bytes, -1 to 1, 0 to 1 without a zero point, ImageNet's values.
QUANTISED = [
    ("uint8", (1 / 255, 0), {"scale": 1}),
    ("int8", (1 / 255, -128), {"scale": 1}),
    ("int8", (1.0, -128), {"scale": 255}),
    ("int8", (0.0078125, 0), {"mean": (127.5,), "std": (127.5,), "scale": 255}),
    ("int8", (1 / 127, 0), {"scale": 1}),
    ("int8", (0.0186584, -14), {"mean": MEAN, "std": STD}),
    ("uint8", (0.01, 90), {"mean": MEAN, "std": STD, "channels": "bgr"}),
]


@pytest.mark.parametrize(("dtype", "scales", "rules"), QUANTISED)
def test_quantised_inputs_take_real_values_on_their_scale(dtype: str, scales: Any, rules: Any) -> None:
    array = prepare(SAME, dtype, scales, **rules)
    assert array.dtype == dtype
    limits = np.iinfo(dtype)
    real = prepare(SAME, "float32", **rules).astype(np.float64)
    steps = np.clip(real / scales[0] + scales[1], limits.min, limits.max)
    # In float32, a value half way between two steps may fall to either side.
    assert np.abs(array - steps).max() <= 0.5 + 1e-4
    # Margins have the grey of the picture.
    boxed = prepare((1, 3, 64, 64), dtype, scales, resize="letterbox", fill=200, **rules)
    grey = prepare((1, 3, 64, 64), "float32", resize="letterbox", fill=200, **rules)[0, :, 0, 0].astype(np.float64)
    reference = np.clip(grey / scales[0] + scales[1], limits.min, limits.max)
    assert np.abs(boxed[0, :, 0, 0] - reference).max() <= 0.5 + 1e-4


def test_inputs_of_uint8_take_bytes_where_their_scale_is_a_step_away() -> None:
    """As TFLite's own libraries hand them over: 255 would be 256 on a scale of 1 / 128."""
    array = prepare(SAME, "uint8", (0.0078125, 128), mean=(0.5,), std=(0.5,))
    np.testing.assert_array_equal(array[0], PICTURE)


@pytest.mark.parametrize("scales", [None, (0.0078125, 0)])
def test_without_a_rule_for_values_bytes_are_bytes(scales: Any) -> None:
    np.testing.assert_array_equal(prepare(SAME, "int8", scales, channels="rgb")[0], PICTURE.astype(int) - 128)


def test_scales_along_an_axis_are_none() -> None:
    scales = [Quantization("x", (1.0, 1.0, 1.0), (0, 0, 0), 3)]
    with pytest.raises(InputError, match="takes bytes without a scale"):
        PictureInput(TensorSpec("x", SAME, "uint8"), Preparation(mean=MEAN), scales)


@pytest.mark.parametrize(("form", "order"), [("rgb24", [0, 1, 2]), ("bgr24", [2, 1, 0]), ("bgra", [2, 1, 0, 0])])
def test_frames_of_video_are_prepared_as_photos(form: str, order: list[int]) -> None:
    spec, rules = TensorSpec("x", (1, 3, 32, 40)), Preparation(sampling="opencv", resize="letterbox")
    stage = PreparationStage(Pixels(form, media.WIDTH, media.HEIGHT), PictureInput(spec, rules))
    array, geometry = PictureInput(spec, rules).prepare(PICTURE)
    np.testing.assert_array_equal(stage(np.ascontiguousarray(PICTURE[..., order])), array)
    assert stage.geometry == geometry
