"""YuNet's twelve outputs: a known face encoded by its formula comes back."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import InputError
from tests.support.decoding import decode, guess

SIZE = (96, 64)
POINTS = np.array([(30, 20), (42, 21), (36, 26), (31, 33), (41, 34)], float)


def outputs(*, with_face: bool) -> dict[str, np.ndarray]:
    arrays = {
        f"{part}_{stride}": np.zeros((1, (96 // stride) * (64 // stride), width), np.float32)
        for part, width in (("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 10))
        for stride in (8, 16, 32)
    }
    if with_face:
        # A face of 24, 14, 48, 42 in the second row and third column of the level of 16 pixels.
        cell, corner = 1 * 6 + 2, np.array((32, 16))
        arrays["cls_16"][0, cell], arrays["obj_16"][0, cell] = 0.9, 0.8
        arrays["bbox_16"][0, cell] = [*((36, 28) - corner) / 16, np.log(24 / 16), np.log(28 / 16)]
        arrays["kps_16"][0, cell] = ((POINTS - corner) / 16).reshape(-1)
    return arrays


def test_a_face_with_its_points() -> None:
    result = decode("yunet", SIZE, outputs(with_face=True))
    np.testing.assert_allclose(result.boxes, [(24, 14, 48, 42)], atol=1e-4)
    np.testing.assert_allclose(result.scores, [0.72], atol=1e-6)
    np.testing.assert_allclose(result.points[0, :, :2], POINTS, atol=1e-4)
    assert result.names == ["face"]


def test_nobody_in_sight() -> None:
    result = decode("yunet", SIZE, outputs(with_face=False))
    assert (result.boxes.shape, result.points.shape) == ((0, 4), (0, 5, 3))


def test_is_recognised_by_its_names() -> None:
    card = guess(SIZE, outputs(with_face=False))
    assert card.decoder == "yunet"
    assert card.preparation is not None
    assert (card.preparation.margin, card.preparation.scale) == ("corner", 255)


def test_names_the_shapes_wanted() -> None:
    arrays = outputs(with_face=False)
    with pytest.raises(InputError, match=r"'kps_32' \[1, 6, 10\], for an input of 96x64; the model's outputs are"):
        decode("yunet", SIZE, {name: array for name, array in arrays.items() if name != "kps_32"})
