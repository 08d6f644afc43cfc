"""Operators: one table with fusion, family and operations of each kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline.model.passes.bindings import kernel
from pipeline.tvm.objects import items

# Below a few vectors of channels, transforms take what products save.
_WINOGRAD_CHANNELS = 16

Operations = Callable[[Any, int], int]
"""Operation count of a call, from the number of its elements."""


@dataclass(frozen=True)
class OperatorKind:
    """Properties of all operators of one kind."""

    pattern: str
    """Part in fusion: ``"elementwise"``, ``"broadcast"``, ``"injective"``, ``"reduction"``, ``"anchor"`` (each of its
    results is computed from many values, and what follows it element by element joins it) or ``"opaque"``."""
    family: str
    """Family of `pipeline.core.board.board_checks.FAMILIES`: operators that reach a similar share of a device's rates,
    and that devices can run or not."""
    operations: Operations
    """Returns the floating-point operations of a call; a multiply and an add count as two."""


def _no_flops(_call: Any, _elements: int) -> int:
    return 0


def _one_per_element(_call: Any, elements: int) -> int:
    return elements


def _series_per_element(_call: Any, elements: int) -> int:
    # An exponential by a polynomial of degree 5 to 7, scaled, and a quotient or a product.
    return 20 * elements


def _five_per_element(_call: Any, elements: int) -> int:
    # A softmax takes a difference, an exponential, a sum and a quotient; norms take about as many.
    return 5 * elements


def _one_per_input(call: Any, _elements: int) -> int:
    return math.prod(_shape(call.args[0]))


def _window(call: Any, elements: int) -> int:
    return elements * math.prod(int(extent) for extent in call.attrs.pool_size)


def _convolution(call: Any, elements: int) -> int:
    return 2 * elements * _kernel_area(call) * _channels(call.args[0], call) // int(call.attrs.groups)


def _transposed_convolution(call: Any, _elements: int) -> int:
    # Each input, not each result, is multiplied with all of a kernel.
    return 2 * math.prod(_shape(call.args[0])) * _kernel_area(call) * _channels(call, call) // int(call.attrs.groups)


def _kernel_area(call: Any) -> int:
    """Return the elements of a kernel per channel pair, in any layout."""
    layout = str(call.attrs.kernel_layout)
    extents = zip(layout, _shape(call.args[1]), strict=True)
    return math.prod(extent for axis, extent in extents if axis not in "OI")


def _channels(tensor: Any, call: Any) -> int:
    """Return the channels of a convolution's data or result."""
    return _shape(tensor)[str(call.attrs.data_layout).index("C")]


def _product(call: Any, elements: int) -> int:
    return 2 * elements * (_shape(call.args[0]) or (1,))[-1]


def _recurrent(call: Any, _elements: int) -> int:
    # The loop over the steps, whose operands are the projected inputs, weights in tiles of three axes, and states.
    inputs, *operands = call.args[1].fields
    steps, batch, _ = _shape(inputs)
    weights = [math.prod(_shape(operand)) for operand in operands if len(_shape(operand)) == len(_shape(inputs))]
    return 2 * steps * batch * sum(weights)


def _shape(expression: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in items(expression.ty.shape.values))


_TABLE: dict[tuple[str, str, Operations], str] = {
    ("elementwise", "elementwise", _one_per_element): """
        abs add astype bitwise_and bitwise_not bitwise_or bitwise_xor ceil clip dequantize divide equal floor
        floor_divide floor_mod greater greater_equal isfinite isinf isnan leakyrelu left_shift less less_equal
        logical_and logical_not logical_or logical_xor maximum minimum mod multiply negative not_equal prelu quantize
        relu relu6 requantize right_shift round rsqrt sign sqrt square subtract trunc where
    """,
    ("elementwise", "elementwise", _series_per_element): """
        acos acosh asin asinh atan atanh cos cosh erf exp gelu gelu_tanh log power selu sigmoid silu sin sinh softplus
        tan tanh
    """,
    ("broadcast", "movement", _no_flops): "broadcast_to expand_dims meshgrid one_hot squeeze stack",
    ("injective", "movement", _no_flops): """
        concat flatten flip full full_like gather_elements layout_transform mirror_pad ones ones_like pad permute_dims
        repeat replicate_pad reshape resize1d resize2d resize3d scatter_elements split strided_slice take tile tril
        triu zeros zeros_like
    """,
    ("reduction", "reduction", _one_per_input): "max min prod sum",
    ("anchor", "reduction", _one_per_input): "argmax argmin mean std variance",
    ("anchor", "convolution", _convolution): "conv1d conv2d conv3d",
    ("anchor", "convolution", _transposed_convolution): "conv1d_transpose conv2d_transpose conv3d_transpose",
    ("anchor", "matmul", _product): "matmul",
    ("anchor", "matmul", _five_per_element): "attention einsum",
    ("opaque", "matmul", _recurrent): "gru lstm rnn",
    ("anchor", "pooling", _window): "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d",
    ("anchor", "pooling", _one_per_input): "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d",
    ("anchor", "normalization", _five_per_element): """
        batch_norm group_norm instance_norm layer_norm log_softmax rms_norm softmax
    """,
}

KINDS = {name: OperatorKind(*row) for row, names in _TABLE.items() for name in names.split()}
"""Properties of operators by Relax name, without its namespace."""

# Kernels that a front end brings, and operators that few models have, are known by words in their names.
_WORDS = {"conv": "convolution", "pool": "pooling", "norm": "normalization", "softmax": "normalization"}


def operator_kind(name: str) -> OperatorKind:
    """Return a kind's properties; an unknown kind fuses with nothing."""
    if name in KINDS:
        return KINDS[name]
    family = next((family for word, family in _WORDS.items() if _has_word(name, word)), "other")
    return OperatorKind("opaque", family, _no_flops)


def _has_word(name: str, word: str) -> bool:
    # Of `conv` only at the front: other names hold it as well, such as those of what converts.
    return name.startswith(word) if word == "conv" else word in name


def operator_family(name: str, call: Any = None) -> str:
    """Return an operator's family; `call` reveals depthwise convolutions."""
    family = operator_kind(name).family
    return "depthwise" if family == "convolution" and _is_depthwise(call) else family


def suits_winograd(call: Any) -> bool:
    """Test for a dense, unstrided 3x3 convolution of many channels."""
    attributes: Any = getattr(call, "attrs", None)
    if getattr(attributes, "kernel_layout", None) is None or int(attributes.groups) != 1:
        return False
    steps = [int(step) for step in (*attributes.strides, *attributes.dilation)]
    kernel_shape = dict(zip(str(attributes.kernel_layout), _shape(call.args[1]), strict=True))
    window = [extent for axis, extent in kernel_shape.items() if axis not in "OI"]
    return set(steps) == {1} and window == [3, 3] and min(kernel_shape["O"], kernel_shape["I"]) >= _WINOGRAD_CHANNELS


def operations(call: Any, name: str, elements: int) -> int:
    """Return the floating-point operations of one call."""
    kind = operator_kind(name)
    if kernel(call) is None:
        return kind.operations(call, elements)
    # A kernel's arguments are not those of the operator whose name it has, unless there is no such operator.
    count = {"elementwise": _one_per_element, "anchor": _five_per_element, "opaque": kind.operations}
    return count.get(kind.pattern, _no_flops)(call, elements)


def _is_depthwise(call: Any) -> bool:
    """Return True if every result of a convolution has one channel."""
    groups = int(getattr(getattr(call, "attrs", None), "groups", 1))
    return groups > 1 and _channels(call.args[0], call) == groups
