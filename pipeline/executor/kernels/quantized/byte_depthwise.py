"""Depthwise convolution of bytes, by single-instruction 16-bit products."""

from __future__ import annotations

from collections.abc import Callable
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
from pipeline.executor.kernels.tiles.byte_window import ByteWindow, ByteWindowLoops, FourWindowLoops
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

    def convolve(
        self, rewriter: Rewriter, source: Any, zero: int, weights: np.ndarray, conv: ConvShape
    ) -> tuple[Callable[[np.ndarray], Any], int]:
        """Convolve channels-last bytes; return sums by what they begin with, and the remaining zero point."""
        builder, cpu = rewriter.builder, rewriter.cpu
        # Instructions take signed data: of unsigned ones the kernel subtracts 128.
        zero -= 0 if str(source.ty.dtype) == "int8" else 128
        if conv.group_outputs > 1:
            source = builder.emit(relax.op.repeat(source, conv.group_outputs, 3))
        packed_weights = np.ascontiguousarray(weights[:, 0].transpose(1, 2, 0)).astype(np.int8)
        shape = replace(conv, channels=conv.out_channels, groups=1)
        form = ByteWindow(shape, zero, byte_window.fit_pairs(packed_weights), byte_window.by_fours(shape, cpu))
        operand = constant(byte_window.pack_fours(packed_weights, conv) if form.by_fours else packed_weights)

        def begin(numbers: np.ndarray) -> Any:
            start = constant(np.broadcast_to(numbers, (shape.channels,)).astype(np.int32))
            return builder.emit(self.placeholder(builder, form, [source, operand, start], conv.result, "int32"))

        return begin, zero

    def write(self, group: FusedGroup, form: ByteWindow, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over windows."""
        loops = FourWindowLoops if form.by_fours else ByteWindowLoops
        return loops(form, cpu, group.operands, epilogue_store(group), tasks).statement()

    def operations(self, form: ByteWindow) -> int:
        """Count multiplications and additions."""
        return form.conv.window_operations
