"""Group normalization: standardise channel groups, then scale and shift channels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import MEMORY_BOUND, Kernel, epilogue_store
from pipeline.executor.kernels.layer_norm import bind_moments
from pipeline.executor.kernels.layout.expressions import extents, name_of
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.rows import matching
from pipeline.executor.kernels.rows.rows import RowBlock, Rows, loop_over_rows, store_lanes
from pipeline.tvm import statements as tir


@dataclass(frozen=True)
class GroupNormForm:
    """Data shape with channels first, groups, and epsilon.

    A scale and a shift for each channel are there if the flags say so.
    """

    shape: tuple[int, ...]
    groups: int
    epsilon: float
    scaled: bool
    shifted: bool

    @property
    def rows(self) -> Rows:
        """One row per group: its channels are adjacent."""
        rows = self.shape[0] * self.groups
        return Rows((rows, math.prod(self.shape) // rows), (1,))


class GroupNorm(Kernel[GroupNormForm]):
    """Group normalization; with one group per channel, instance normalization."""

    name = "group_norm"
    operators = frozenset({"nn.group_norm", "nn.instance_norm"})
    form = GroupNormForm
    effort = MEMORY_BOUND

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a normalization over all axes behind the channels."""
        data, *parameters = call.args
        attrs, ndim = call.attrs, data.ty.ndim
        if not matching.is_float_data(data, call, *parameters) or int(attrs.channel_axis) % ndim != 1:
            return None
        if matching.axes_of(attrs.axes, ndim) != tuple(range(2, ndim)):
            return None
        flags = bool(attrs.scale), bool(attrs.center)
        operands = [parameter for parameter, flag in zip(parameters, flags, strict=True) if flag]
        shape = extents(data.ty)
        groups = int(attrs.num_groups) if name_of(call) == "nn.group_norm" else shape[1]
        form = GroupNormForm(shape, groups, float(attrs.epsilon), *flags)
        return ModelLayout(
            self.placeholder(rewriter.builder, form, [rewriter.plain(data), *map(rewriter.plain, operands)], shape)
        )

    def write(self, group: FusedGroup, form: GroupNormForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over groups."""
        data, *parameters = group.operands
        source, declaration = tir.flat(data, "data", form.rows.size)
        store, pixels = epilogue_store(group), math.prod(form.shape[2:])
        channels = form.shape[1] // form.groups

        def body(block: RowBlock) -> Any:
            statements, mean, factor = bind_moments(block, source, form.epsilon)
            # Rows are the groups of one image after the other.
            image, first = block.indices[0] // form.groups, block.indices[0] % form.groups * channels

            def channel(number: Any) -> Any:
                c = first + number
                scale, shift = tirx.Var("scale", "float32"), tirx.Var("shift", "float32")
                scale_value = factor * tir.load(parameters[0], c) if form.scaled else factor
                shift_value = tir.load(parameters[-1], c) if form.shifted else tir.constant(0.0)

                def step(offset: Any, size: int) -> Any:
                    # The mean goes first: scaled, it would cancel where it is large.
                    value = block.read(source, number * pixels + offset, size) - tir.wide(mean, size)
                    value = value * tir.wide(scale, size) + tir.wide(shift, size)
                    return tir.sequence(
                        store_lanes(value, size, lambda result, lane: store_pixel(result, offset + lane))
                    )

                def store_pixel(value: Any, pixel: Any) -> Any:
                    return store(value, image, c, *tir.unravel(pixel, form.shape[2:]))

                bindings = [tirx.Bind(scale, scale_value), tirx.Bind(shift, shift_value)]
                return tir.sequence([*bindings, tir.run(pixels, cpu.lanes, step)])

            return tir.sequence([*statements, tir.loop("channel", channels, channel)])

        return tir.sequence([declaration, loop_over_rows(form.rows, cpu.lanes, tasks, body, count=1)])

    def operations(self, form: GroupNormForm) -> int:
        """Count the operations of both passes and scaling."""
        return form.rows.size * 6
