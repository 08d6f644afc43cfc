"""Resizing, sampling and detection against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.relay_programs import apply, random, results, signature

IMAGE = random(1, 2, 4, 6)


def coordinates(extent_in: int, extent_out: int, mode: str) -> np.ndarray:
    """Return where each of the new pixels lies among the old ones."""
    item = np.arange(extent_out)
    if mode == "align_corners":
        return item * (extent_in - 1) / (extent_out - 1)
    return (item + 0.5) * extent_in / extent_out - 0.5 if mode == "half_pixel" else item * extent_in / extent_out


def interpolate(x: np.ndarray, axis: int, positions: np.ndarray) -> np.ndarray:
    last = x.shape[axis] - 1
    first = np.clip(np.floor(positions).astype(int), 0, last)
    second = np.clip(np.floor(positions).astype(int) + 1, 0, last)
    share = (positions - np.floor(positions)).reshape(-1, *[1] * (x.ndim - axis - 1))
    return np.asarray(x.take(first, axis) * (1 - share) + x.take(second, axis) * share)


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
def test_linear_resizing(mode: str) -> None:
    output = apply(f'image.resize2d(%a, size=[7, 9], method="linear", coordinate_transformation_mode="{mode}")', IMAGE)
    reference = interpolate(interpolate(IMAGE, 2, coordinates(4, 7, mode)), 3, coordinates(6, 9, mode))
    np.testing.assert_allclose(output, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_nearest_neighbours(layout: str) -> None:
    operand = IMAGE if layout == "NCHW" else IMAGE.transpose(0, 2, 3, 1)
    output = apply(
        f'image.resize2d(%a, size=[8, 3], roi=[0f, 0f, 0f, 0f], layout="{layout}", method="nearest_neighbor", '
        'coordinate_transformation_mode="asymmetric", rounding_method="", cubic_alpha=-0.75f)',
        operand,
    )
    reference = IMAGE[:, :, np.arange(8) // 2][:, :, :, np.arange(3) * 2]
    np.testing.assert_array_equal(output, reference if layout == "NCHW" else reference.transpose(0, 2, 3, 1))


def test_nearest_neighbours_round_by_default() -> None:
    """An attribute that is missing has its default; an empty text stands for the usual rounding."""
    output = apply(
        'image.resize2d(%a, size=[3, 6], method="nearest_neighbor", coordinate_transformation_mode="asymmetric")', IMAGE
    )
    np.testing.assert_array_equal(output, IMAGE[:, :, [0, 1, 3]])


@pytest.mark.parametrize("mode", ["align_corners", "half_pixel", "asymmetric"])
@pytest.mark.parametrize("size", [(7, 11), (2, 4), (8, 5), (10, 4)])
def test_exact_halves_are_rounded_up(mode: str, size: tuple[int, int]) -> None:
    image = random(1, 2, 4, 6)
    rows, columns = (
        np.clip(np.floor(coordinates(extent_in, extent_out, mode) + 0.5).astype(int), 0, extent_in - 1)
        for extent_in, extent_out in zip((4, 6), size, strict=True)
    )
    text = f'size={list(size)}, method="nearest_neighbor", coordinate_transformation_mode="{mode}"'
    output = apply(f"image.resize2d(%a, {text})", image)
    np.testing.assert_array_equal(output, image[:, :, rows][:, :, :, columns])


def test_rows_and_volumes() -> None:
    row = IMAGE[:, :, 0]
    output = apply('image.resize1d(%a, size=[9], coordinate_transformation_mode="asymmetric")', row)
    np.testing.assert_allclose(output, interpolate(row, 2, coordinates(6, 9, "asymmetric")), rtol=1e-4, atol=1e-5)
    volume = random(1, 2, 2, 3, 2)
    output = apply("nn.upsampling3d(%a, scale_d=2f, scale_h=1f, scale_w=2f, coordinate_transformation_mode="
                  '"asymmetric")', volume)  # fmt: skip
    np.testing.assert_array_equal(output, volume.repeat(2, 2).repeat(2, 4))


def test_upsampling() -> None:
    np.testing.assert_array_equal(
        apply("nn.upsampling(%a, scale_h=2f, scale_w=3f)", IMAGE), IMAGE.repeat(2, 2).repeat(3, 3)
    )
    output = apply('nn.upsampling(%a, scale_h=2f, scale_w=2f, method="bilinear", align_corners=True)', IMAGE)
    reference = interpolate(
        interpolate(IMAGE, 2, coordinates(4, 8, "align_corners")), 3, coordinates(6, 12, "align_corners")
    )
    np.testing.assert_allclose(output, reference, rtol=1e-4, atol=1e-5)


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
    count, mask, location = results(text, {"a": BOXES})
    assert count.tolist() == [4]
    np.testing.assert_array_equal(mask[0, :4], BOXES[0, :4])
    assert (mask[0, 4] == -1).all()
    assert location[0].tolist() == [0, 1, 2, 3, -1]


def test_boxes_that_overlap_are_suppressed() -> None:
    text = f"""({signature({"a": BOXES})}) {{
      %0 = vision.get_valid_counts(%a, 0.1f, id_index=0, score_index=1);
      vision.non_max_suppression(%0.1, %0.0, %0.2, -1, 0.5f, top_k=-1, return_indices=False, invalid_to_bottom=True)
    }}"""
    (output,) = results(text, {"a": BOXES})
    np.testing.assert_array_equal(output[0, :3], BOXES[0, [0, 1, 3]])
    assert (output[0, 3:] == -1).all()


def test_regions_of_interest() -> None:
    image, regions = random(1, 2, 8, 8), np.array([[0, 2, 2, 6, 6]], np.float32)
    output = apply("vision.roi_pool(%a, %b, pooled_size=[1, 1], spatial_scale=1f)", image, regions)
    np.testing.assert_allclose(output[0, :, 0, 0], image[0, :, 2:7, 2:7].max((1, 2)))
    flat = np.full((1, 2, 8, 8), 3, np.float32)
    output = apply("vision.roi_align(%a, %b, pooled_size=[2, 2], spatial_scale=1f, sample_ratio=2)", flat, regions)
    np.testing.assert_allclose(output, np.full((1, 2, 2, 2), 3))


def test_anchors() -> None:
    output = apply("vision.multibox_prior(%a, sizes=[0.5f, 0.25f], ratios=[1f, 2f])", random(1, 3, 2, 2))
    assert output.shape == (1, 12, 4)
    np.testing.assert_allclose(output[0, 0], [0, 0, 0.5, 0.5])
    np.testing.assert_allclose(output[0, 1], [0.125, 0.125, 0.375, 0.375])
    sides = np.sqrt(2) / 4, 1 / np.sqrt(2) / 4
    np.testing.assert_allclose(
        output[0, 2], [0.25 - sides[0], 0.25 - sides[1], 0.25 + sides[0], 0.25 + sides[1]], rtol=1e-6
    )


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
def test_rows_in_all_coordinates(mode: str) -> None:
    row = IMAGE[:, :, 0]
    output = apply(f'image.resize1d(%a, size=[9], coordinate_transformation_mode="{mode}")', row)
    np.testing.assert_allclose(output, interpolate(row, 2, coordinates(6, 9, mode)), rtol=1e-4, atol=1e-5)


def test_regions_are_pooled() -> None:
    """A region's corners are rounded to pixels, both of which belong to it; its bins may overlap."""
    x, regions = random(2, 3, 9, 8), np.array([[0, 0, 0, 10, 8], [1, 4, 2, 15, 16], [1, 9, 9, 9, 9]], np.float32)
    output = apply("vision.roi_pool(%a, %b, pooled_size=[2, 3], spatial_scale=0.5f)", x, regions)
    for number, (batch, *corners) in enumerate(regions):
        first, top, second, bottom = (int(np.trunc(each * 0.5 + 0.5)) for each in corners)
        height, width = max(bottom - top + 1, 1), max(second - first + 1, 1)
        for row in range(2):
            for column in range(3):
                rows = slice(top + row * height // 2, min(9, top + -(-(row + 1) * height // 2)))
                columns = slice(first + column * width // 3, min(8, first + -(-(column + 1) * width // 3)))
                bin_ = x[int(batch), :, rows, columns]
                reference = bin_.max((1, 2)) if bin_.size else np.zeros(3)
                np.testing.assert_array_equal(output[number, :, row, column], reference)
