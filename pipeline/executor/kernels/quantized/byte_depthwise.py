"""Depthwise convolution of bytes, by single-instruction 16-bit products."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import Kernel, epilogue_store
from pipeline.executor.kernels.layout.expressions import constant
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import byte_window
from pipeline.executor.kernels.tiles.byte_window import ByteWindow, ByteWindowLoops
from pipeline.executor.kernels.tiles.conv_shape import ConvShape

_WIDENING = frozenset({"mlal", "sdot", "mmla"})
"""Ways to multiply bytes of AArch64: each such processor also multiplies eight at once as 16 bits, and adds them up."""

_SIGNED_BYTE = np.iinfo(np.int8)


def applies(cpu: Microarchitecture, weights: np.ndarray) -> bool:
    """Test for suitable products and signed weights."""
    low, high = int(weights.min(initial=0)), int(weights.max(initial=0))
    return cpu.dots in _WIDENING and low >= _SIGNED_BYTE.min and high <= _SIGNED_BYTE.max


class ByteDepthwise(Kernel[ByteWindow]):
    """Depthwise int32 sums, requested by quantised operators alone."""

    name = "depthwise_bytes"
    operators = frozenset()
    form = ByteWindow

    def match(self, rewriter: Rewriter, call: Any) -> Any:  # noqa: ARG002
        """Return None: no operator of a model is one."""
        return None

    def convolve(self, builder: Any, source: Any, zero: int, weights: np.ndarray, conv: ConvShape) -> tuple[Any, int]:
        """Convolve channels-last bytes; return sums and the remaining zero point."""
        # Instructions take signed data: of unsigned ones the kernel subtracts 128.
        zero -= 0 if str(source.ty.dtype) == "int8" else 128
        if conv.group_outputs > 1:
            source = builder.emit(relax.op.repeat(source, conv.group_outputs, 3))
        packed_weights = np.ascontiguousarray(weights[:, 0].transpose(1, 2, 0)).astype(np.int8)
        shape = replace(conv, channels=conv.out_channels, groups=1)
        form = ByteWindow(shape, zero, byte_window.fit_pairs(packed_weights))
        return self.placeholder(builder, form, [source, constant(packed_weights)], conv.result, "int32"), zero

    def write(self, group: FusedGroup, form: ByteWindow, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over windows."""
        data, weights = group.operands
        return ByteWindowLoops(form, cpu, data, weights, epilogue_store(group), tasks).statement()

    def operations(self, form: ByteWindow) -> int:
        """Count multiplications and additions."""
        return form.conv.window_operations
