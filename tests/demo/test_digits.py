from __future__ import annotations

import sys

import numpy as np
import pytest

from pipeline.demo import digits
from pipeline.errors import MissingExtra


def test_held_out_and_training_part_the_data_set() -> None:
    images, labels = digits.held_out()
    training_images, training_labels = digits.training()
    assert (images.shape, images.dtype, labels.dtype) == ((450, 1, 1, 32, 32), np.float32, np.int64)
    assert (len(training_images), len(training_labels)) == (1347, 1347)
    # The data set holds no image twice, so a shared one would be a leak.
    assert not {image.tobytes() for image in images} & {image.tobytes() for image in training_images}


def test_every_digit_is_held_out_about_equally_often() -> None:
    counts = np.bincount(digits.held_out()[1], minlength=10)
    assert counts.min() >= 35
    assert counts.max() <= 55


def test_values_lie_between_0_and_1() -> None:
    images, _ = digits.held_out()
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert images.flags.c_contiguous


def test_enlarging_keeps_a_plain_image_and_interpolates_between_pixel_centres() -> None:
    assert np.all(digits.prepare(np.full((1, 8, 8), 8.0)) == 0.5)
    ramp = digits.prepare(np.tile(np.arange(8.0) * 2, (1, 8, 1)))[0, 0, 0]
    positions = (np.arange(2, 30) + 0.5) / 4 - 0.5
    assert ramp[7, 2:30] == pytest.approx(positions * 2 / 16, abs=1e-7)
    assert list(ramp[0, :2]) == [0.0, 0.0]


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtra, match=r"pip install .*'scikit-learn<"):
        digits.held_out()
