"""Resizing, sampling and detection against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.split.frontends.relay.programs import apply, random, results, signature

IMAGE = random(1, 2, 4, 6)


def places(before: int, after: int, mode: str) -> np.ndarray:
    """Return where each of the new pixels lies among the old ones."""
    each = np.arange(after)
    if mode == "align_corners":
        return each * (before - 1) / (after - 1)
    return (each + 0.5) * before / after - 0.5 if mode == "half_pixel" else each * before / after


def interpolated(x: np.ndarray, axis: int, at: np.ndarray) -> np.ndarray:
    last = x.shape[axis] - 1
    left = np.clip(np.floor(at).astype(int), 0, last)
    right = np.clip(np.floor(at).astype(int) + 1, 0, last)
    share = (at - np.floor(at)).reshape(-1, *[1] * (x.ndim - axis - 1))
    return np.asarray(x.take(left, axis) * (1 - share) + x.take(right, axis) * share)


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
def test_linear_resizing(mode: str) -> None:
    found = apply(f'image.resize2d(%a, size=[7, 9], method="linear", coordinate_transformation_mode="{mode}")', IMAGE)
    expected = interpolated(interpolated(IMAGE, 2, places(4, 7, mode)), 3, places(6, 9, mode))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_nearest_neighbours(layout: str) -> None:
    operand = IMAGE if layout == "NCHW" else IMAGE.transpose(0, 2, 3, 1)
    found = apply(
        f'image.resize2d(%a, size=[8, 3], roi=[0f, 0f, 0f, 0f], layout="{layout}", method="nearest_neighbor", '
        'coordinate_transformation_mode="asymmetric", rounding_method="", cubic_alpha=-0.75f)',
        operand,
    )
    expected = IMAGE[:, :, np.arange(8) // 2][:, :, :, np.arange(3) * 2]
    np.testing.assert_array_equal(found, expected if layout == "NCHW" else expected.transpose(0, 2, 3, 1))


def test_nearest_neighbours_round_by_default() -> None:
    """What is missing in the text is the attribute's default; an empty text stands for the usual rounding."""
    found = apply(
        'image.resize2d(%a, size=[3, 6], method="nearest_neighbor", coordinate_transformation_mode="asymmetric")', IMAGE
    )
    np.testing.assert_array_equal(found, IMAGE[:, :, [0, 1, 3]])


def test_rows_and_volumes() -> None:
    row = IMAGE[:, :, 0]
    found = apply('image.resize1d(%a, size=[9], coordinate_transformation_mode="asymmetric")', row)
    np.testing.assert_allclose(found, interpolated(row, 2, places(6, 9, "asymmetric")), rtol=1e-4, atol=1e-5)
    volume = random(1, 2, 2, 3, 2)
    found = apply("nn.upsampling3d(%a, scale_d=2f, scale_h=1f, scale_w=2f, coordinate_transformation_mode="
                  '"asymmetric")', volume)  # fmt: skip
    np.testing.assert_array_equal(found, volume.repeat(2, 2).repeat(2, 4))


def test_upsampling() -> None:
    np.testing.assert_array_equal(
        apply("nn.upsampling(%a, scale_h=2f, scale_w=3f)", IMAGE), IMAGE.repeat(2, 2).repeat(3, 3)
    )
    found = apply('nn.upsampling(%a, scale_h=2f, scale_w=2f, method="bilinear", align_corners=True)', IMAGE)
    expected = interpolated(interpolated(IMAGE, 2, places(4, 8, "align_corners")), 3, places(6, 12, "align_corners"))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_sampling_at_the_points_themselves() -> None:
    rows, columns = np.meshgrid(np.linspace(-1, 1, 4), np.linspace(-1, 1, 6), indexing="ij")
    grid = np.stack([columns, rows])[None].astype(np.float32)
    np.testing.assert_allclose(apply("image.grid_sample(%a, %b)", IMAGE, grid), IMAGE, rtol=1e-4, atol=1e-5)


BOXES = np.array(
    [
        [
            [0, 0.8, 1, 1, 9, 9],
            [1, 0.7, 1, 1, 9, 9],
            [0, 0.4, 1, 1, 8, 9],
            [0, 0.3, 50, 50, 60, 60],
            [1, 0.05, 1, 1, 2, 2],
        ]
    ],
    np.float32,
)


def test_boxes_above_a_score() -> None:
    text = f"({signature({'a': BOXES})}) {{ vision.get_valid_counts(%a, 0.1f, id_index=0, score_index=1) }}"
    count, kept, where = results(text, {"a": BOXES})
    assert count.tolist() == [4]
    np.testing.assert_array_equal(kept[0, :4], BOXES[0, :4])
    assert (kept[0, 4] == -1).all()
    assert where[0].tolist() == [0, 1, 2, 3, -1]


def test_boxes_that_overlap_are_suppressed() -> None:
    text = f"""({signature({"a": BOXES})}) {{
      %0 = vision.get_valid_counts(%a, 0.1f, id_index=0, score_index=1);
      vision.non_max_suppression(%0.1, %0.0, %0.2, -1, 0.5f, top_k=-1, return_indices=False, invalid_to_bottom=True)
    }}"""
    (found,) = results(text, {"a": BOXES})
    np.testing.assert_array_equal(found[0, :3], BOXES[0, [0, 1, 3]])
    assert (found[0, 3:] == -1).all()


def test_regions_of_interest() -> None:
    image, regions = random(1, 2, 8, 8), np.array([[0, 2, 2, 6, 6]], np.float32)
    found = apply("vision.roi_pool(%a, %b, pooled_size=[1, 1], spatial_scale=1f)", image, regions)
    np.testing.assert_allclose(found[0, :, 0, 0], image[0, :, 2:7, 2:7].max((1, 2)))
    flat = np.full((1, 2, 8, 8), 3, np.float32)
    found = apply("vision.roi_align(%a, %b, pooled_size=[2, 2], spatial_scale=1f, sample_ratio=2)", flat, regions)
    np.testing.assert_allclose(found, np.full((1, 2, 2, 2), 3))


def test_anchors() -> None:
    found = apply("vision.multibox_prior(%a, sizes=[0.5f, 0.25f], ratios=[1f, 2f])", random(1, 3, 2, 2))
    assert found.shape == (1, 12, 4)
    np.testing.assert_allclose(found[0, 0], [0, 0, 0.5, 0.5])
    np.testing.assert_allclose(found[0, 1], [0.125, 0.125, 0.375, 0.375])
    half = np.sqrt(2) / 4, 1 / np.sqrt(2) / 4
    np.testing.assert_allclose(found[0, 2], [0.25 - half[0], 0.25 - half[1], 0.25 + half[0], 0.25 + half[1]], rtol=1e-6)
