from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.model_card import FILL, Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.prepared_bundle import prepare_bundle
from pipeline.picture.geometry import fit
from pipeline.picture.pixels import Pixels
from pipeline.picture.preparation import PictureInput, PreparationStage
from tests.support import media

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RGB = Pixels("rgb24", 64, 48)
LAYOUTS = [((1, 3, 48, 64), (0, 2, 3, 1)), ((3, 48, 64), (1, 2, 0)), ((1, 48, 64, 3), None), ((48, 64, 3), None)]


def prepare(picture: np.ndarray, shape: tuple[int, ...], dtype: str = "float32", **options: Any) -> np.ndarray:
    pixels = Pixels("rgb24", picture.shape[1], picture.shape[0])
    return PreparationStage(pixels, PictureInput(TensorSpec("x", shape, dtype), Preparation(**options)))(picture)


@pytest.mark.parametrize(("shape", "axes"), LAYOUTS)
@pytest.mark.parametrize("channels", ["rgb", "bgr"])
def test_values_and_layout(shape: Any, axes: Any, channels: str) -> None:
    picture = media.noise(1)[0]
    picture_input = prepare(picture, shape, mean=MEAN, std=STD, channels=channels)
    assert (picture_input.shape, picture_input.dtype) == (shape, np.float32)
    back = picture_input.transpose(axes) if axes else picture_input
    colours = picture[..., ::-1] if channels == "bgr" else picture
    reference = (colours / 255 - np.array(MEAN)) / np.array(STD)
    np.testing.assert_allclose(back.reshape(48, 64, 3), reference, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_bytes_stay_bytes_and_floats_go_from_0_to_1(dtype: str) -> None:
    picture = media.noise(1)[0]
    picture_input = prepare(picture, (48, 64, 3), dtype)
    if dtype == "uint8":
        np.testing.assert_array_equal(picture_input, picture)
    else:
        np.testing.assert_allclose(picture_input, picture / 255, rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
def test_signed_bytes_are_bytes_less_128(resize: str) -> None:
    picture = media.noise(1)[0]
    shape = (1, 3, 40, 40)
    signed, unsigned = (prepare(picture, shape, dtype, resize=resize) for dtype in ("int8", "uint8"))
    assert signed.dtype == np.int8
    np.testing.assert_array_equal(signed.astype(int), unsigned.astype(int) - 128)


def test_letterbox_has_margins_and_crop_has_none() -> None:
    picture = np.full((48, 64, 3), 200, np.uint8)
    letterbox = prepare(picture, (1, 3, 32, 32), "uint8", resize="letterbox")
    assert (letterbox[:, :, 4:28] == 200).all()
    assert (letterbox[:, :, :4] == FILL).all()
    assert (letterbox[:, :, 28:] == FILL).all()
    assert (prepare(picture, (1, 3, 32, 32), "uint8", resize="crop") == 200).all()


@pytest.mark.parametrize("resize", ["stretch", "letterbox", "crop"])
@pytest.mark.parametrize("room", [(32, 32), (100, 40), (224, 224)])
def test_points_come_back_to_where_they_were(resize: str, room: tuple[int, int]) -> None:
    """A bright spot of the picture is found in the input, and its place is brought back."""
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[20:24, 30:34] = 255
    result = prepare(picture, (1, room[1], room[0], 3), resize=resize)[0, ..., 0]
    if resize == "letterbox":
        result = result * (np.abs(result - FILL / 255) > 1e-6)
    rows, columns = np.nonzero(result > result.max() / 2)
    x, y = fit(resize, (64, 48), room).back(columns.mean() + 0.5, rows.mean() + 0.5)
    assert (x, y) == pytest.approx((32, 22), abs=1.5)


def test_grey_models_take_the_brightness() -> None:
    picture = np.full((48, 64, 3), 100, np.uint8)
    assert prepare(picture, (1, 1, 24, 32), "uint8").tolist() == np.full((1, 1, 24, 32), 100).tolist()


def test_replicas_may_share_one_stage() -> None:
    stage = PreparationStage(RGB, PictureInput(TensorSpec("x", (1, 3, 24, 32)), Preparation()))
    pictures = media.noise(40)
    single = [stage(picture) for picture in pictures]
    with ThreadPoolExecutor(4) as threads:
        for picture_input, reference in zip(threads.map(stage, pictures), single, strict=True):
            np.testing.assert_array_equal(picture_input, reference)


def test_it_is_a_stage_of_its_own_unless_the_model_takes_the_picture_itself() -> None:
    bundle, geometry = prepare_bundle(media.identity((1, 3, 24, 32), "float32"), RGB, Preparation())
    assert [stage.name for stage in bundle.plan.stages] == ["prepare", "same"]
    assert geometry == fit("stretch", (64, 48), (32, 24))
    picture = np.full((48, 64, 3), 51, np.uint8)
    with pipeline.load(bundle) as running:
        np.testing.assert_allclose(running.submit(picture).result(), np.full((1, 3, 24, 32), 0.2), atol=1e-6)
    bundle = media.identity((48, 64, 3))
    assert prepare_bundle(bundle, RGB, Preparation()) == (bundle, None)
    assert prepare_bundle(bundle, None, Preparation()) == (bundle, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resize": "shrink"}, "'stretch', 'letterbox', 'crop'"),
        ({"channels": "grb"}, "'rgb' or 'bgr'"),
        ({"mean": (1, 2)}, "one number, or three"),
        ({"std": (1, 0, 1)}, "above 0"),
        ({"std": (float("nan"),)}, "one number, or three"),
        ({"mean": (123.675, 116.28, 103.53)}, "values of 0 to 255; here they are of 0 to 1: divide both by 255"),
        ({"mean": (0.485, 0.456, 0.406), "std": (58.395, 57.12, 57.375)}, "divide both by 255"),
    ],
)
def test_options_that_make_no_sense(options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Preparation(**options)


@pytest.mark.parametrize(("shape", "dtype"), [((4,), "float32"), ((2, 3, 8, 8), "float32"), ((1, 3, 8, 8), "int64")])
def test_models_that_take_no_pictures(shape: Any, dtype: str) -> None:
    with pytest.raises(InputError, match=r"images do not fit the model's input x"):
        prepare_bundle(media.identity(shape, dtype), RGB, Preparation())


def test_bytes_are_not_normalised() -> None:
    with pytest.raises(InputError, match="takes bytes"):
        prepare(media.smooth(), (1, 3, 8, 8), "uint8", mean=MEAN)
