"""Operators without ONNX Runtime: cases of the onnx package's own give the outputs that it expects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import pipeline
from pipeline.errors import ModelError
from tests.support.onnx_cases import cases
from tests.support.onnx_models import check_outputs, in_stages, node, save

pytestmark = pytest.mark.thorough

# Of each family the forms that differ in what is read of them; bench/conformance.py runs all.
CASES = {
    "definitions": """
        attention_3d_gqa_causal attention_24_qk_matmul_output_mode3_softmax_precision rotary_embedding_3d_input
        sce_mean_weight_ii layer_normalization_2d_axis0
    """,
    "extents": """
        expand_dim_changed reshape_negative_dim squeeze_negative_axes unsqueeze_two_axes tile tile_precomputed
        constantofshape_int_zeros range_float_type_positive_delta split_variable_parts_2d_opset18 shape_start_1_end_2
        slice_neg_steps slice_negative_axes slice_end_out_of_bounds onehot_negative_indices eyelike_with_dtype
        constant_pad constant_pad_negative_axes reflect_pad edge_pad wrap_pad center_crop_pad_crop_and_pad triu_pos
        size
    """,
    "reductions": """
        reduce_sum_do_not_keepdims_random reduce_l1_keep_dims_random reduce_l2_negative_axes_keep_dims_random
        reduce_max_bool_inputs reduce_log_sum_exp_do_not_keepdims_random reduce_mean_negative_axes_keepdims_random
        cumsum_2d_axis_0 cumsum_1d_reverse_exclusive cumprod_2d_axis_1 cumprod_1d_int32_exclusive top_k
    """,
    "normalisation": """
        l1normalization_axis_0 l2normalization_axis_1 rms_normalization_2d_axis0 batchnorm_epsilon_training_mode
    """,
    "windows": """
        maxpool_with_argmax_2d_precomputed_pads maxpool_with_argmax_2d_precomputed_strides conv_with_autopad_same
        convtranspose_output_shape col2im_pads col2im_5d deform_conv_with_mask_bias
        deform_conv_with_multiple_offset_groups
    """,
    "images": """
        affine_grid_2d_align_corners affine_grid_3d resize_downsample_sizes_cubic
        resize_downsample_sizes_nearest_not_smaller resize_upsample_scales_linear_align_corners
    """,
    "others": "qlinearmatmul_2D_uint8_float32 qlinearmatmul_3D_int8_float16 tensorscatter_circular",
    "bits": "bitcast_float32_to_int32 bitcast_int8_to_uint8",
}


@pytest.mark.parametrize("attributes", [{}, {"axes": [-2, 1]}])
def test_slice_of_an_old_opset(tmp_path: Path, attributes: dict[str, Any]) -> None:
    """As exporters of PyTorch 1.0 write it; an end behind the last element means that."""
    part = helper.make_node("Slice", ["x"], ["s"], starts=[-2, 1], ends=[2**31 - 1, 3], **attributes)
    graph = check_outputs(save(tmp_path / "m.onnx", [part, node("Relu", "s", "y")], {"x": (3, 4)}, ["y"], opset=9))
    assert not graph.islands


@pytest.mark.parametrize("name", [name for names in CASES.values() for name in names.split()])
def test_case(name: str) -> None:
    case = cases()[f"test_{name}"]
    graph = pipeline.read(onnx.ModelProto.FromString(case.model.SerializeToString()), fallback=False)
    for inputs, expected in case.data_sets:
        values = dict(zip((value.name for value in case.model.graph.input), inputs, strict=True))
        outputs = in_stages(graph, [], {spec.name: np.asarray(values[spec.name]) for spec in graph.inputs})
        for spec, reference in zip(graph.outputs, expected, strict=True):
            assert outputs[spec.name].dtype == reference.dtype
            np.testing.assert_allclose(outputs[spec.name], reference, rtol=case.rtol, atol=case.atol)


def test_an_operand_that_is_left_out_in_front_of_another() -> None:
    """The package does not write such a node out by its definition, so that it is left to the runtime."""
    case = cases()["test_attention_4d_gqa_causal_nonpad_decode"]
    graph = pipeline.read(onnx.ModelProto.FromString(case.model.SerializeToString()))
    assert [island.operators[0].split()[0] for island in graph.islands] == ["Attention"]


def test_scales_that_come_with_each_frame() -> None:
    """The shape of the result does not say where between two pixels each of it lies."""
    model = cases()["test_resize_upsample_scales_nearest"].model
    with pytest.raises(ModelError, match="its scales depend on values"):
        pipeline.read(onnx.ModelProto.FromString(model.SerializeToString()), fallback=False)
