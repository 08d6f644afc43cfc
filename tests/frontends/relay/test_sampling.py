"""Crops, deformed windows, grids and SSD's boxes, against NumPy."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import ModelError
from tests.support.relay_programs import HEADER, apply, random, results, signature

pytestmark = pytest.mark.thorough


def pixel(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """Return an image of the shape (C, H, W) between its pixels; zeros outside."""
    total: np.ndarray = np.zeros(image.shape[0])
    for row, column in itertools.product(
        (int(np.floor(y)), int(np.floor(y)) + 1), (int(np.floor(x)), int(np.floor(x)) + 1)
    ):
        if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
            total = total + image[:, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


@pytest.mark.parametrize("method", ["bilinear", "nearest_neighbor"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.one_in(2)
def test_crops(layout: str, method: str) -> None:
    """A box is given by shares of the image's last row and column; what lies outside is a given value."""
    x, owners = random(2, 3, 6, 7), np.array([1, 0, 1], np.int32)
    boxes = np.array([[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 1.0], [0.5, 0.3, 1.4, 0.7]], np.float32)
    operands = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
    call = f'crop_size=[3, 4], layout="{layout}", method="{method}", extrapolation_value=9f'
    output = apply(f"image.crop_and_resize(%a, %b, %c, {call})", operands, boxes, owners)
    output = output if layout == "NCHW" else output.transpose(0, 3, 1, 2)
    for number, (top, first, bottom, second) in enumerate(boxes):
        for row, column in itertools.product(range(3), range(4)):
            y_position = top * 5 + row * (bottom - top) * 5 / 2
            x_position = first * 6 + column * (second - first) * 6 / 3
            image = x[owners[number]]
            if not (0 <= y_position <= 5 and 0 <= x_position <= 6):
                reference = np.full(3, 9.0)
            elif method == "bilinear":
                reference = pixel(image, y_position, x_position)
            else:
                reference = image[:, int(np.floor(y_position + 0.5)), int(np.floor(x_position + 0.5))]
            np.testing.assert_allclose(output[number, :, row, column], reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("parts", [1, 2])
def test_deformed_convolutions(parts: int) -> None:
    """Weights read where their offsets say; offsets are pairs of rows and columns, per part of the channels.

    In front of the first row and column there are zeros at once; behind the last ones, values fade to zero.
    """
    x, weight = random(1, 4, 5, 6), random(2, 4, 3, 3, seed=1)
    offset = random(1, 2 * parts * 9, 5, 6, seed=2) * 0.7
    call = f"padding=[1, 1, 1, 1], channels=2, kernel_size=[3, 3], deformable_groups={parts}"
    output = apply(f"nn.deformable_conv2d(%a, %b, %c, {call})", x, offset, weight)
    reference = np.zeros((1, 2, 5, 6))
    for row, column, tap in itertools.product(range(5), range(6), range(9)):
        read = []
        for part in range(parts):
            dy, dx = offset[0, 18 * part + 2 * tap : 18 * part + 2 * tap + 2, row, column]
            y_position, x_position = row - 1 + tap // 3 + dy, column - 1 + tap % 3 + dx
            channels = x[0, part * 4 // parts : (part + 1) * 4 // parts]
            is_inside = 0 <= y_position < 5 and 0 <= x_position < 6
            read.append(pixel(channels, y_position, x_position) if is_inside else np.zeros(4 // parts))
        reference[0, :, row, column] += weight.reshape(2, 4, 9)[:, :, tap] @ np.concatenate(read)
    np.testing.assert_allclose(output, reference, rtol=1e-3, atol=1e-3)


def test_grids_of_matrices() -> None:
    matrices = random(2, 2, 3)
    output = apply("image.affine_grid(%a, target_shape=[3, 4])", matrices)
    y, x = np.meshgrid(np.linspace(-1, 1, 3), np.linspace(-1, 1, 4), indexing="ij")
    positions = np.stack([x, y, np.ones_like(x)]).reshape(3, -1)
    np.testing.assert_allclose(output, (matrices @ positions).reshape(2, 2, 3, 4), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("clip", [True, False])
def test_boxes_of_ssd(clip: bool) -> None:
    generator = np.random.default_rng(0)
    classes = generator.dirichlet([1, 1, 1], (2, 6)).transpose(0, 2, 1).astype(np.float32)
    moves = random(2, 24)
    corners = np.sort(generator.random((1, 6, 2, 2)), axis=2).reshape(1, 6, 4).astype(np.float32)
    operands = {"a": classes, "b": moves}
    attributes = f"clip={clip}, threshold=0.4f, variances=[0.1f, 0.1f, 0.2f, 0.2f]"
    call = f"vision.multibox_transform_loc(%a, %b, %anchors, {attributes})"
    rows, counts = results(
        f"({signature({**operands, 'anchors': corners})}) {{ {call} }}", operands, {"anchors": corners}
    )
    for image in range(2):
        reference = []
        for anchor in range(6):
            label = int(classes[image, 1:, anchor].argmax())
            score = classes[image, 1 + label, anchor]
            first, top, second, bottom = corners[0, anchor]
            x, y, w, h = moves[image, 4 * anchor : 4 * anchor + 4]
            centre = np.array(
                [x * 0.1 * (second - first) + (first + second) / 2, y * 0.1 * (bottom - top) + (top + bottom) / 2]
            )
            half = np.array([np.exp(w * 0.2) * (second - first) / 2, np.exp(h * 0.2) * (bottom - top) / 2])
            box = np.concatenate([centre - half, centre + half])
            if score >= 0.4:
                reference.append([label, score, *(np.clip(box, 0, 1) if clip else box)])
        assert 0 < len(reference) < 6
        assert counts[image] == len(reference)
        np.testing.assert_allclose(rows[image, : len(reference)], reference, rtol=1e-4, atol=1e-5)
        assert (rows[image, len(reference) :] == -1).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ModelError, match=r"the shapes .* do not fit"):
        apply("nn.deformable_conv2d(%a, %b, %c)", random(1, 4, 5, 5), random(1, 4, 5, 5), random(2, 4, 3, 3))
    with pytest.raises(ModelError, match="expected matrices of 2 by 3"):
        apply("image.affine_grid(%a, target_shape=[3, 4])", random(2, 3, 3))


def overlap(first: np.ndarray, second: np.ndarray) -> float:
    """Return the area that two boxes share, as a share of what they cover together."""
    edges = np.maximum(0, np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2]))
    areas = [np.prod(box[2:] - box[:2]) for box in (first, second)]
    return float(np.prod(edges) / (sum(areas) - np.prod(edges)))


def test_boxes_are_suppressed_for_all_classes() -> None:
    generator = np.random.default_rng(0)
    corners = generator.random((2, 12, 2)) * 3
    boxes = np.concatenate([corners, corners + 1 + generator.random((2, 12, 2))], axis=2).astype(np.float32)
    scores = generator.random((2, 3, 12)).astype(np.float32)
    operands = {"a": boxes, "b": scores}
    call = "vision.all_class_non_max_suppression(%a, %b, 4i64, 0.3f, 0.2f)"
    rows, counts = results(f"({signature(operands)}) {{ {call} }}", operands)
    reference = []
    for image, label in itertools.product(range(2), range(3)):
        choice: list[int] = []
        for box in np.argsort(-scores[image, label]):
            free = all(overlap(boxes[image, box], boxes[image, other]) <= 0.3 for other in choice)
            if scores[image, label, box] > 0.2 and free and len(choice) < 4:
                choice.append(int(box))
        reference += [(image, label, box) for box in choice]
    assert counts == len(reference) > 6
    assert sorted(map(tuple, rows[: len(reference)].tolist())) == sorted(reference)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_largest_sums_of_windows(layout: str) -> None:
    x, weight = random(1, 2, 7, 6), random(2, 2, 3, seed=1)
    operands = (x, weight) if layout == "NCHW" else (x.transpose(0, 2, 3, 1), weight.transpose(1, 2, 0))
    kernel_layout = "IHW" if layout == "NCHW" else "HWI"
    call = f'strides=[2, 1], data_layout="{layout}", kernel_layout="{kernel_layout}"'
    output = apply(f"image.dilation2d(%a, %b, {call})", *operands)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), axis=(2, 3))[:, :, ::2]
    reference = (windows + weight[None, :, None, None]).max((4, 5))
    np.testing.assert_allclose(output, reference if layout == "NCHW" else reference.transpose(0, 2, 3, 1), rtol=1e-6)


def test_a_kernel_of_its_own_is_built_in_stages(tmp_path: Path) -> None:
    """An operator that Relax lacks comes as a kernel, which goes with its stage."""
    path = tmp_path / "m.relay"
    path.write_text(
        f"{HEADER}def @main(%x: Tensor[(1, 2, 8, 8), float32], %r: Tensor[(3, 5), float32]) "
        "{ %0 = nn.softmax(%x); %1 = vision.roi_pool(%0, %r, pooled_size=[2, 2], spatial_scale=1f); nn.softmax(%1) }"
    )
    graph = pipeline.read(path)
    bundle = pipeline.build(graph, pipeline.plan(graph, cuts=["%0", "%1"]))
    bundle.save(tmp_path / "m.bundle")
    x, regions = random(1, 2, 8, 8), np.array([[0, 0, 0, 3, 3], [0, 2, 1, 7, 6], [0, 4, 4, 5, 5]], np.float32)
    with pipeline.load(tmp_path / "m.bundle") as running:
        result = running.submit({"x": x, "r": regions}).result()
    powers = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    pools = apply("vision.roi_pool(%a, %b, pooled_size=[2, 2], spatial_scale=1f)", powers, regions)
    np.testing.assert_allclose(result, np.exp(pools) / np.exp(pools).sum(-1, keepdims=True), rtol=1e-4)
