"""Winograd: 3x3 convolutions by transformed tiles, where faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.conv import read_conv
from pipeline.executor.kernels.kernel import Kernel, epilogue_store
from pipeline.executor.kernels.layout.expressions import constant
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import packing
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.winograd import error
from pipeline.executor.kernels.winograd import form as forms
from pipeline.executor.kernels.winograd.form import WinogradForm
from pipeline.executor.kernels.winograd.loops import WinogradLoops


class WinogradConvolution(Kernel[WinogradForm]):
    """Convolution by Winograd's transforms, if the numerics allow them.

    `choose`: function from a convolution's shape, processor and weights to its form, or None for the direct
    computation.
    """

    name = "winograd"
    operators = frozenset({"nn.conv2d"})
    form = WinogradForm

    def __init__(
        self,
        choose: Callable[[ConvShape, Microarchitecture, NDArray[np.float32]], WinogradForm | None] = forms.choose_form,
    ) -> None:
        self._choose = choose

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a convolution with fewer cycles by Winograd."""
        # What is quantised again would be another number for another rounding.
        is_real = rewriter.numerics.transforms and rewriter.producer(call.args[0], "dequantize") is None
        conv = read_conv(call) if is_real else None
        form = None if conv is None else self._choose(conv.shape, rewriter.cpu, conv.weights)
        if conv is None or form is None:
            return None
        rewriter.errors[rewriter.name] = error.bound(conv.weights, form.outputs)
        source = conv.layout.source(rewriter, call.args[0])
        # Products are of float32 in each precision: 16 bits would be widened in the innermost loop, and round more.
        stored = replace(rewriter.cpu, weights=rewriter.numerics.weights)
        weights = constant(packing.store_weights(forms.pack(conv.weights, form), stored))
        return conv.layout.result(self.placeholder(rewriter.builder, form, [source, weights], conv.shape.result))

    def write(self, group: FusedGroup, form: WinogradForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over chunks of tiles."""
        return _loops(group, form, cpu, tasks).statement()

    def operations(self, form: WinogradForm) -> int:
        """Count the multiplications and additions of the direct computation."""
        return form.operations

    def writes_once(self, group: FusedGroup, form: WinogradForm, cpu: Microarchitecture, tasks: int) -> bool:
        """Test for non-overlapping chunks and vectors."""
        return _loops(group, form, cpu, tasks).exact


def _loops(group: FusedGroup, form: WinogradForm, cpu: Microarchitecture, tasks: int) -> WinogradLoops:
    data, weights = group.operands
    return WinogradLoops(form, cpu, data, weights, epilogue_store(group), tasks)
