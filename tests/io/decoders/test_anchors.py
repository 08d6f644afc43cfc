"""Detectors with anchors: known boxes encoded by their formulas come back."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import InputError
from tests.support.decoding import decode, guess

SSD, FACES = (300, 300), (320, 240)


def ssd_outputs() -> dict[str, np.ndarray]:
    """One box at the second cell of the second row, whose anchor is the third level's last."""
    boxes, scores = np.zeros((1, 1917, 4), np.float32), np.zeros((1, 1917, 3), np.float32)
    scores[..., 0] = 1
    # Levels of 19, 10 and 5 cells in a row, with 3, 6 and 6 anchors each.
    index = 19 * 19 * 3 + 10 * 10 * 6 + (1 * 5 + 1) * 6 + 5
    side = 300 * np.sqrt(0.5 * 0.65)
    x, y = 90.0, 90.0
    left, top, right, bottom = 30, 40, 200, 140
    centre = ((top + bottom) / 2 - y) / side / 0.1, ((left + right) / 2 - x) / side / 0.1
    boxes[0, index] = [*centre, np.log((bottom - top) / side) / 0.2, np.log((right - left) / side) / 0.2]
    scores[0, index] = (0.1, 0.1, 0.8)
    return {"concat": boxes, "convert_scores": scores}


def test_ssd_leaves_out_the_background() -> None:
    result = decode("ssd", SSD, ssd_outputs(), ("cat", "dog"))
    np.testing.assert_allclose(result.boxes, [(30, 40, 200, 140)], atol=1e-3)
    assert result.names == ["dog"]
    assert guess(SSD, ssd_outputs()).decoder == "ssd"


def test_ssd_reads_logits() -> None:
    outputs = ssd_outputs()
    logits = np.full_like(outputs["convert_scores"], -20)
    logits[outputs["convert_scores"] == np.float32(0.8)] = np.log(4)
    result = decode("ssd", SSD, {**outputs, "convert_scores": logits}, ("cat", "dog"))
    np.testing.assert_allclose(result.scores, [0.8], atol=1e-6)


def test_anchors_can_be_stated() -> None:
    outputs = {"boxes": np.zeros((1, 2, 4), np.float32), "scores": np.array([[[0.9, 0.1], [0.2, 0.7]]], np.float32)}
    result = decode("ssd", (100, 50), outputs, background=False, anchors=[(0.5, 0.5, 0.2, 0.4), (0.2, 0.4, 0.2, 0.2)])
    np.testing.assert_allclose(result.boxes, [(40, 15, 60, 35), (10, 15, 30, 25)], atol=1e-4)
    assert result.classes.tolist() == [0, 1]


def blaze_outputs(*logits: float) -> dict[str, np.ndarray]:
    """A face of 64 pixels at 40, 24 to 104, 88, and another one two pixels beside it, with six points each."""
    boxes, scores = np.zeros((1, 896, 16), np.float32), np.full((1, 896, 1), -100, np.float32)
    # Both of the anchors at the fifth column and third row of the level with 8 pixels.
    for number, logit in enumerate(logits):
        centre = np.array((72 + 2 * number, 56)) - (4.5 * 8, 2.5 * 8)
        boxes[0, (2 * 16 + 4) * 2 + number] = [*centre, 64, 64, *np.tile(centre, 6)]
        scores[0, (2 * 16 + 4) * 2 + number] = logit
    return {"regressors": boxes, "classificators": scores}


def test_faces_that_overlap_become_their_mean() -> None:
    result = decode("blazeface", (128, 128), blaze_outputs(np.log(9), np.log(1.5)))
    shift = 2 * 0.6 / (0.9 + 0.6)
    np.testing.assert_allclose(result.boxes, [(40 + shift, 24, 104 + shift, 88)], atol=1e-3)
    np.testing.assert_allclose(result.points[0], [(72 + shift, 56, 1)] * 6, atol=1e-3)
    np.testing.assert_allclose(result.scores, [0.9], atol=1e-6)
    assert result.names == ["face"]


@pytest.mark.parametrize(
    ("family", "size", "count", "width"),
    [("blazeface", 128, 896, 16), ("blazeface", 192, 2304, 16), ("palm", 192, 2016, 18), ("blazepose", 224, 2254, 12)],
)
def test_mediapipes_models_are_recognised(family: str, size: int, count: int, width: int) -> None:
    outputs = {"a": np.zeros((1, count, width), np.float32), "b": np.full((1, count, 1), -9, np.float32)}
    card = guess((size, size), outputs)
    assert card.decoder == family
    assert card.preparation is not None
    assert card.preparation.resize == "letterbox"
    result = decode(family, (size, size), outputs)
    assert (result.boxes.shape, result.points.shape) == ((0, 4), (0, (width - 4) // 2, 3))


def face_outputs(*, decoded: bool) -> dict[str, np.ndarray]:
    """A face of 100, 60 to 180, 160 at the prior of 64 pixels in the third level's cell 3, 2."""
    left, top, right, bottom = 100.0, 60.0, 180.0, 160.0
    boxes, scores = np.zeros((1, 4420, 4), np.float32), np.tile(np.array((1, 0), np.float32), (1, 4420, 1))
    index = 40 * 30 * 3 + 20 * 15 * 2 + (2 * 10 + 3) * 2
    scores[0, index] = (0.2, 0.8)
    if decoded:
        boxes[0, index] = (left / 320, top / 240, right / 320, bottom / 240)
    else:
        # Corrections are hardly ever in the order of corners.
        boxes[..., 0] = 1
        # Eight rows divide the height evenly.
        x, y = 3.5 * 32, 2.5 / 8 * 240
        centre = ((left + right) / 2 - x) / 64 / 0.1, ((top + bottom) / 2 - y) / 64 / 0.1
        boxes[0, index] = [*centre, np.log((right - left) / 64) / 0.2, np.log((bottom - top) / 64) / 0.2]
    return {"scores": scores, "boxes": boxes}


@pytest.mark.parametrize("decoded", [False, True])
def test_ultraface_tells_boxes_from_corrections(*, decoded: bool) -> None:
    outputs = face_outputs(decoded=decoded)
    for stated in ({}, {"decoded": decoded}):
        result = decode("ultraface", FACES, outputs, **stated)
        np.testing.assert_allclose(result.boxes, [(100, 60, 180, 160)], atol=1e-3)
    assert (result.names, result.points) == (["face"], None)
    assert guess(FACES, outputs).decoder == "ultraface"


def test_retinaface_has_points() -> None:
    # One cell of 32 pixels, with priors of 256 and 512, in an input of 64 by 32: cells are a stride apart.
    count = (8 * 4 + 4 * 2 + 2 * 1) * 2
    arrays = {name: np.zeros((1, count, width), np.float32) for name, width in (("a", 4), ("b", 2), ("c", 10))}
    arrays["b"][0, -2] = (0.1, 0.9)
    arrays["a"][0, -2] = (-0.1, 0, np.log(20 / 256) / 0.2, np.log(10 / 256) / 0.2)
    arrays["c"][0, -2] = np.tile((0.1, -0.05), 5)
    result = decode("retinaface", (64, 32), arrays)
    x, y = 48 - 0.01 * 256, 16
    np.testing.assert_allclose(result.boxes, [(x - 10, y - 5, x + 10, y + 5)], atol=1e-3)
    np.testing.assert_allclose(result.points[0, :, :2], [(48 + 0.01 * 256, 16 - 0.005 * 256)] * 5, atol=1e-3)
    assert guess((64, 32), arrays).decoder == "retinaface"


def test_names_the_shapes_wanted() -> None:
    outputs = {"a": np.zeros((1, 100, 16), np.float32), "b": np.zeros((1, 100, 1), np.float32)}
    with pytest.raises(
        InputError,
        match=r"'blazeface' takes \[1, 896, 16\], \[1, 896, 1\], since there are 896 anchors, for an input of 128x128",
    ):
        decode("blazeface", (128, 128), outputs)


def test_leaves_out_what_is_no_number() -> None:
    outputs = blaze_outputs(2, 2)
    outputs["regressors"][0, (2 * 16 + 4) * 2, 7] = np.inf
    np.testing.assert_allclose(decode("blazeface", (128, 128), outputs).boxes, [(42, 24, 106, 88)], atol=1e-3)
