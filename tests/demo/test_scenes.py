from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from pipeline.demo.scenes import ANGLE, SIZES, Scene, scenes

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def examples() -> list[Scene]:
    return list(islice(scenes(1, 160, 120), 60))


def test_equal_seeds_give_equal_scenes_and_others_do_not(examples: list[Scene]) -> None:
    again, other = (list(islice(scenes(seed, 160, 120), 3)) for seed in (1, 2))
    for scene, repeated, different in zip(examples, again, other, strict=False):
        assert np.array_equal(scene.picture, repeated.picture)
        assert np.array_equal(scene.boxes, repeated.boxes)
        assert not np.array_equal(scene.picture, different.picture)


def test_training_has_digits_of_its_own(examples: list[Scene]) -> None:
    scene = next(scenes(1, 160, 120, training=True))
    assert not np.array_equal(scene.picture, examples[0].picture)


def test_boxes_lie_in_the_picture_and_touch_no_other(examples: list[Scene]) -> None:
    for scene in examples:
        assert (scene.picture.shape, scene.picture.dtype) == ((120, 160, 3), np.uint8)
        assert len(scene.boxes) == len(scene.classes)
        assert (scene.boxes >= 0).all()
        assert (scene.boxes <= (160, 120, 160, 120)).all()
        for number, box in enumerate(scene.boxes):
            for other in scene.boxes[:number]:
                common = np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2])
                assert common.min() <= 0


def test_digits_have_all_sizes_and_classes(examples: list[Scene]) -> None:
    boxes = np.concatenate([scene.boxes for scene in examples])
    sides = (boxes[:, 2:] - boxes[:, :2]).max(1) / 120
    assert sides.min() < 1.3 * SIZES[0]
    assert sides.max() > 0.8 * SIZES[1]
    assert set(np.concatenate([scene.classes for scene in examples])) == set(range(10))
    assert 0 < ANGLE < np.pi / 2
