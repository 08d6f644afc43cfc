"""Operators that change shapes, pick elements, move them between axes or make constants, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import ModelError
from pipeline.frontends.relay.operators.shapes import decode_shape
from tests.support.relay_programs import apply, random, results, signature

pytestmark = pytest.mark.thorough

X = random(2, 3, 4)


@pytest.mark.parametrize(
    ("extents", "codes", "reference"),
    [
        ((2, 3, 4), (4, 0, 2), (4, 3, 2)),
        ((2, 3, 4), (2, 0, 0), (2, 3, 4)),
        ((2, 3, 4), (6, 1, -1), (6, 1, 4)),
        ((2, 3, 4), (3, -1, 8), (3, 1, 8)),
        ((2, 3, 4), (-1,), (24,)),
        ((2, 3, 4), (-2,), (2, 3, 4)),
        ((2, 3, 4), (2, -2), (2, 3, 4)),
        ((2, 3, 4), (-2, 1, 1), (2, 3, 4, 1, 1)),
        ((2, 3, 4), (-3, 4), (6, 4)),
        ((2, 3, 4, 5), (-3, -3), (6, 20)),
        ((2, 3, 4), (0, -3), (2, 12)),
        ((2, 3, 4), (-3, -2), (6, 4)),
        ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)),
        ((2, 3, 4), (2, -4, -1, 3, -2), (2, 1, 3, 4)),
        ((1,), (), ()),
    ],
)
def test_codes_of_a_shape(extents: tuple[int, ...], codes: tuple[int, ...], reference: tuple[int, ...]) -> None:
    assert decode_shape(extents, codes) == reference


@pytest.mark.parametrize(
    "codes", [(5, 5), (-1, -1), (0, 0, 0, 0), (-3, -3), (-4, 0, -1), (-4, 2), (-5,), (2, 3, 4, 0), (-4, 3, 2, -2)]
)
def test_codes_that_do_not_fit(codes: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="does not become"):
        decode_shape((2, 3, 4), codes)


def test_zero_may_be_an_extent() -> None:
    with pytest.raises(ModelError):
        decode_shape((2, 3), (0, 3), zero_is_zero=True)


@pytest.mark.parametrize(
    ("call", "reference"),
    [
        ("reshape(%a, newshape=[0, -1])", X.reshape(2, 12)),
        ("reshape_like(%a, %a, lhs_begin=1, rhs_begin=1)", X),
        ("nn.batch_flatten(%a)", X.reshape(2, 12)),
        ("squeeze(expand_dims(%a, axis=1, num_newaxis=2))", X),
        ("squeeze(expand_dims(%a, axis=-1), axis=[-1])", X),
        ("expand_dims(%a, axis=0)", X[None]),
        ("transpose(%a)", X.T),
        ("transpose(%a, axes=[1, -1, 0])", X.transpose(1, 2, 0)),
        ("broadcast_to(sum(%a, axis=0, keepdims=True), shape=[2, 3, 4])", np.broadcast_to(X.sum(0), (2, 3, 4))),
        ("broadcast_to_like(sum(%a, axis=0), %a)", np.broadcast_to(X.sum(0), (2, 3, 4))),
        ("concatenate((%a, %a), axis=-1)", np.concatenate([X, X], -1)),
        ("stack((%a, %a), axis=1)", np.stack([X, X], 1)),
        ("stack((%a, %a), axis=-1)", np.stack([X, X], -1)),
        ("split(%a, indices_or_sections=2, axis=2).1", X[:, :, 2:]),
        ("split(%a, indices_or_sections=[1, 3], axis=2).1", X[:, :, 1:3]),
        ("split(%a, indices_or_sections=1).0", X),
        ("tile(%a, reps=[2, 1, 3])", np.tile(X, (2, 1, 3))),
        ("repeat(%a, repeats=2, axis=1)", X.repeat(2, 1)),
        ("reverse(%a, axis=1)", X[:, ::-1]),
        ("strided_slice(%a, begin=[0, 1], end=[2, 3], strides=[1])", X[0:2, 1:3]),
        ("strided_slice(%a, begin=[-3, 0], end=[100, -1], strides=[1, 2], axes=[2, 1])", X[:, 0:-1:2, -3:]),
        ("strided_slice(%a, begin=[3, 2], end=[-100, 0], strides=[-2, -1], axes=[2, 1])", X[:, 2:0:-1, ::-2]),
        ('strided_slice(%a, begin=[0, 1, 0], end=[-1, 2, 3], slice_mode="size")', X[:, 1:3, :3]),
        ("slice_like(%a, sum(strided_slice(%a, begin=[0, 0], end=[1, 2]), axis=2), axes=[0, 1])", X[:1, :2]),
        ("nn.pad(%a, 2f, pad_width=[[0, 0], [1, 2], [0, 1]])", np.pad(X, [(0, 0), (1, 2), (0, 1)], constant_values=2)),
        ("nn.pad(%a, pad_width=[[0, 0], [1, 2], [0, 1]])", np.pad(X, [(0, 0), (1, 2), (0, 1)])),
        (
            'nn.pad(%a, 0f, pad_width=[[0, 0], [1, 2], [0, 0]], pad_mode="edge")',
            np.pad(X, [(0, 0), (1, 2), (0, 0)], "edge"),
        ),
        (
            'nn.pad(%a, 0f, pad_width=[[0, 0], [1, 2], [0, 0]], pad_mode="reflect")',
            np.pad(X, [(0, 0), (1, 2), (0, 0)], "reflect"),
        ),
        ("nn.mirror_pad(%a, pad_width=[[0, 1], [3, 2], [0, 0]])", np.pad(X, [(0, 1), (3, 2), (0, 0)], "symmetric")),
        (
            'nn.mirror_pad(%a, pad_width=[[0, 0], [2, 1], [1, 0]], mode="REFLECT")',
            np.pad(X, [(0, 0), (2, 1), (1, 0)], "reflect"),
        ),
        ('layout_transform(%a, src_layout="NCW", dst_layout="WNC")', X.transpose(2, 0, 1)),
        ('layout_transform(%a, src_layout="NCW", dst_layout="NCW2w")', X.reshape(2, 3, 2, 2)),
        ('layout_transform(%a, src_layout="NCW", dst_layout="WN2wC")', X.reshape(2, 3, 2, 2).transpose(2, 0, 3, 1)),
        (
            'layout_transform(reshape(%a, newshape=[2, 3, 2, 2]), src_layout="NCW2w", dst_layout="NWC")',
            X.transpose(0, 2, 1),
        ),
        ("zeros_like(%a)", 0 * X),
        ("ones_like(%a)", 0 * X + 1),
        ("full_like(%a, 3f)", 0 * X + 3),
        ("add(%a, zeros(shape=[4]))", X),
        ('add(%a, ones(shape=[2, 3, 4], dtype="float32"))', X + 1),
        ('add(%a, full(2f, shape=[1], dtype="float32"))', X + 2),
        ('multiply(%a, arange(0, 4, 1, start=0, stop=4, step=1, dtype="float32"))', X * np.arange(4)),
        ('add(%a, cast(take(shape_of(%a), 1, axis=0), dtype="float32"))', X + 3),
        ('add(%a, cast(ndarray_size(%a), dtype="float32"))', X + 24),
        ("reshape(%a, shape_of(sum(%a, axis=[], exclude=False, keepdims=True)))", None),
    ],
)
def test_against_numpy(call: str, reference: np.ndarray | None) -> None:
    if reference is None:
        with pytest.raises(ModelError, match="does not become"):
            apply(call, X)
        return
    np.testing.assert_allclose(apply(call, X), reference, rtol=1e-6)


def test_all_parts_of_a_split() -> None:
    output = results(f"({signature({'a': X})}) {{ split(%a, indices_or_sections=3, axis=1) }}", {"a": X})
    for item, reference in zip(output, np.split(X, 3, 1), strict=True):
        np.testing.assert_array_equal(item, reference)


def test_picking_elements() -> None:
    indices = np.array([[0, 2], [3, 1]], np.int32)
    np.testing.assert_array_equal(apply("take(%a, %b, axis=2)", X, indices), X.take(indices, 2))
    np.testing.assert_array_equal(apply("take(%a, %b)", X, indices), X.take(indices))
    indices_outside = np.array([-5, 9], np.int64)
    np.testing.assert_array_equal(
        apply("take(%a, %b, axis=0)", X, indices_outside), X.take(indices_outside, 0, mode="clip")
    )
    np.testing.assert_array_equal(
        apply('take(%a, %b, axis=1, mode="wrap")', X, indices_outside), X.take(indices_outside, 1, mode="wrap")
    )
    indices_of_axis = np.array([[[0, 3]] * 3] * 2, np.int64)
    np.testing.assert_array_equal(
        apply("gather(%a, %b, axis=2)", X, indices_of_axis), np.take_along_axis(X, indices_of_axis, 2)
    )


def test_picking_by_tuples_of_indices() -> None:
    indices = np.array([[0, 1, 1], [2, 0, 1]], np.int64)
    np.testing.assert_array_equal(apply("gather_nd(%a, %b)", X, indices), X[indices[0], indices[1]])
    batch_rows = np.array([[2, 0]], np.int64)
    np.testing.assert_array_equal(apply("gather_nd(%a, %b, batch_dims=1)", X, batch_rows), X[[0, 1], batch_rows[0]])


def test_placing_elements() -> None:
    indices, values = np.array([[[1, 0, 3]] * 3] * 2, np.int64), random(2, 3, 3, seed=1)
    reference = X.copy()
    np.put_along_axis(reference, indices, values, 2)
    np.testing.assert_array_equal(apply("scatter_elements(%a, %b, %c, axis=2)", X, indices, values), reference)
    rows = np.array([[1, 0], [2, 1]], np.int64)
    reference = X.copy()
    reference[rows[0], rows[1]] += values[0, :2, :1]
    updates = np.broadcast_to(values[0, :2, :1], (2, 4)).copy()
    np.testing.assert_allclose(apply('scatter_nd(%a, %b, %c, mode="add")', X, rows, updates), reference, rtol=1e-6)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    labels = np.array([[0, 2], [5, 1]], np.int32)
    output = apply(f'one_hot(%a, 2f, -1f, depth=3, axis={axis}, dtype="float32")', labels)
    reference = np.where(labels[..., None] == np.arange(3), 2, -1)
    np.testing.assert_array_equal(output, np.moveaxis(reference, -1, axis))


@pytest.mark.parametrize("mode", ["DCR", "CDR"])
def test_blocks_of_pixels(mode: str) -> None:
    image = random(1, 8, 2, 3)
    if mode == "DCR":
        reference = image.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6)
    else:
        reference = image.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 4, 6)
    np.testing.assert_array_equal(apply(f'nn.depth_to_space(%a, block_size=2, mode="{mode}")', image), reference)
    if mode == "DCR":
        np.testing.assert_array_equal(apply("nn.space_to_depth(%a, block_size=2)", reference), image)
        last = apply('nn.depth_to_space(%a, block_size=2, layout="NHWC")', image.transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(last.transpose(0, 3, 1, 2), reference)


@pytest.mark.parametrize(
    ("dynamic", "static"),
    [
        ("dyn.tile(%a, %s)", "tile(%a, reps=[1, 2, 1])"),
        ("dyn.squeeze(%a, %s)", "squeeze(%a, axis=[1, 2, 1])"),
        ("dyn.strided_slice(%a, %z, %s, %o)", "strided_slice(%a, begin=[0, 0, 0], end=[1, 2, 1], strides=[1, 1, 1])"),
        ("dyn.expand_dims(%a, 1)", "expand_dims(%a, axis=1)"),
        ("dyn.topk(%a, 2, axis=1, ret_type=\"values\")", "topk(%a, k=2, axis=1, ret_type=\"values\")"),
        ("dyn.nn.pad(%a, %p, 7f)", "nn.pad(%a, 7f, pad_width=[[1, 0], [0, 2], [0, 0]])"),
        ("dyn.one_hot(cast(%a, dtype=\"int32\"), 2f, 1f, 3, axis=0, dtype=\"float32\")",
         "one_hot(cast(%a, dtype=\"int32\"), 2f, 1f, depth=3, axis=0, dtype=\"float32\")"),
    ],
    ids=lambda text: text.partition("(")[0],
)  # fmt: skip
def test_operands_that_are_constants_are_attributes(dynamic: str, static: str) -> None:
    x = random(2, 1, 1) if "squeeze" in dynamic else random(2, 3, 4)
    constants = {
        "s": np.array([1, 2, 1], np.int64), "z": np.array([0, 0, 0], np.int64), "o": np.array([1, 1, 1], np.int64),
        "p": np.array([[1, 0], [0, 2], [0, 0]], np.int64),
    }  # fmt: skip
    np.testing.assert_array_equal(apply(dynamic, x, **constants), apply(static, x))


def test_images_resized_by_operands_are_those_resized_by_attributes() -> None:
    x = random(1, 2, 4, 4)
    output = apply("dyn.image.resize2d(%a, %s, %r)", x, s=np.array([6, 8], np.int64), r=np.zeros(4, np.float32))
    np.testing.assert_array_equal(output, apply("image.resize2d(%a, size=[6, 8])", x))
    call = 'method="nearest_neighbor"'
    output = apply(f"dyn.nn.upsampling(%a, 2f, 3f, {call})", x)
    np.testing.assert_array_equal(output, apply(f"nn.upsampling(%a, scale_h=2f, scale_w=3f, {call})", x))
