"""Operators: cases of the onnx package, written anew, give ONNX Runtime the outputs that the package expects."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import pipeline
from tests.support.onnx_cases import cases
from tests.support.onnx_stages import assert_same, run_exported

pytestmark = pytest.mark.thorough

# Of each family the forms that are written differently.
CASES = {
    "elementwise": """
        acos_example add_uint8 atanh_example celu clip_default_int8_min elu erf gelu_default_1 gelu_tanh_1
        hardswish isinf isnan leakyrelu less_int8 mish mod_mixed_sign_int64 mod_mixed_sign_float32 mod_uint8 not_2d
        or_bcast4v3d pow_types_float32_int32 prelu_broadcast reciprocal relu round selu sign softplus
        softsign sub_uint8 tanh where_example xor_bcast4v4d
    """,
    "whole numbers": """
        bitshift_left_uint16 bitshift_right_uint8 bitwise_and_i32_2d bitwise_not_3d bitwise_or_i16_4d
        bitwise_xor_ui8_bcast_4v3d div_int8 max_int16 min_uint64
    """,
    "convolutions": """
        basic_conv_with_padding conv_with_strides_and_asymmetric_padding convtranspose_1d convtranspose_3d
        convtranspose_group_2 convtranspose_pads
    """,
    "windows": """
        averagepool_2d_ceil  averagepool_2d_pads_count_include_pad
        averagepool_3d_dilations_small globalaveragepool maxpool_1d_default maxpool_2d_ceil maxpool_2d_dilations
        maxpool_2d_uint8 lppool_2d_pads
    """,
    "movement": """
        concat_3d_axis_negative_2 depthtospace_crd_mode_example expand_dim_changed flatten_axis1 reshape_zero_dim
        slice_neg_steps slice_negative_axes split_variable_parts_2d_opset18 tile transpose_all_permutations_4 tril_neg
        triu_pos edge_pad reflect_pad wrap_pad constant_pad_negative_axes
    """,
    "indexing": """
        gather_negative_indices gather_elements_negative_indices gathernd_example_int32_batch_dim1
        onehot_negative_indices scatter_elements_with_reduction_max scatter_elements_with_axis scatternd_add
        scatternd_multiply
    """,
    "reductions": """
        argmax_keepdims_example_select_last_index argmin_no_keepdims_example cumsum_1d_exclusive cumprod_2d_axis_1
        reduce_l2_negative_axes_keep_dims_random reduce_log_sum_exp_do_not_keepdims_random reduce_max_bool_inputs
        reduce_mean_keepdims_random reduce_prod_do_not_keepdims_random reduce_sum_default_axes_keepdims_random top_k
        top_k_smallest
    """,
    "constants": "constantofshape_int_zeros shape_start_1_end_2 size",
    "products": "einsum_batch_matmul gemm_all_attributes matmul_4d qlinearmatmul_2D_uint8_float32 attention_4d_causal",
    "norms": """
        batchnorm_epsilon group_normalization_example instancenorm_epsilon layer_normalization_2d_axis0
        layer_normalization_4d_axis_negative_1 logsoftmax_axis_1 mvn rms_normalization_2d_axis0 softmax_axis_0
    """,
    "steps": "dequantizelinear_axis quantizelinear_axis dynamicquantizelinear",
    "images": """
        resize_downsample_sizes_cubic resize_upsample_scales_linear_align_corners
        resize_upsample_sizes_nearest_ceil_half_pixel
        gridsample_bicubic gridsample_volumetric_nearest_align_corners_0 gridsample_border_padding
    """,
    "recurrent": """
        gru_with_initial_bias gru_seq_length gru_batchwise lstm_with_peepholes lstm_batchwise rnn_seq_length
        simple_rnn_bidirectional
    """,
}


@pytest.mark.parametrize("name", [name for names in CASES.values() for name in names.split()])
def test_case(name: str) -> None:
    case = cases()[f"test_{name}"]
    graph = pipeline.read(onnx.ModelProto.FromString(case.model.SerializeToString()), fallback=False)
    inputs, expected = case.data_sets[0]
    values = dict(zip((value.name for value in case.model.graph.input), inputs, strict=True))
    outputs = run_exported(graph, {spec.name: np.asarray(values[spec.name]) for spec in graph.inputs})
    assert_same(outputs, dict(zip((spec.name for spec in graph.outputs), map(np.asarray, expected), strict=True)))
