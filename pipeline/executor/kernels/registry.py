"""Registry: one line per kernel, in matching order."""

from __future__ import annotations

from typing import Any

import msgspec

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.argmax import Argmax
from pipeline.executor.kernels.batched_matmul import BatchedMatmul
from pipeline.executor.kernels.conv import DirectConvolution
from pipeline.executor.kernels.conv_transpose import ConvTranspose
from pipeline.executor.kernels.data_movement import DataMovement
from pipeline.executor.kernels.depthwise import DepthwiseConvolution
from pipeline.executor.kernels.group_norm import GroupNorm
from pipeline.executor.kernels.kernel import Kernel
from pipeline.executor.kernels.layer_norm import LayerNorm
from pipeline.executor.kernels.layout.layout_agnostic import LayoutAgnostic
from pipeline.executor.kernels.layout.lines import Lines
from pipeline.executor.kernels.layout.rewriter import Rewrite
from pipeline.executor.kernels.local_response_norm import LocalResponseNorm
from pipeline.executor.kernels.matmul import Matmul
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.pair_operators import PairOperators
from pipeline.executor.kernels.pooling import Pooling
from pipeline.executor.kernels.prelu import PRelu
from pipeline.executor.kernels.quantized.byte_depthwise import ByteDepthwise
from pipeline.executor.kernels.quantized.byte_tables import ByteTable
from pipeline.executor.kernels.quantized.integer_operators import IntegerOperators
from pipeline.executor.kernels.quantized.operators import QuantizedOperators
from pipeline.executor.kernels.reductions import Reduction
from pipeline.executor.kernels.resize import BilinearResize
from pipeline.executor.kernels.softmax import Softmax
from pipeline.executor.kernels.winograd.winograd import WinogradConvolution

REWRITES: tuple[Rewrite, ...] = (
    # Before what takes the same operators of float32.
    QuantizedOperators(),
    IntegerOperators(),
    ByteDepthwise(),
    ByteTable(),
    # They become other operators, which those behind them take.
    Lines(),
    PRelu(),
    # The direct computation is for convolutions that no other one suits better.
    DepthwiseConvolution(),
    PairOperators(),
    WinogradConvolution(),
    DirectConvolution(),
    ConvTranspose(),
    Pooling(),
    Matmul(),
    BatchedMatmul(),
    LocalResponseNorm(),
    LayerNorm(),
    GroupNorm(),
    Softmax(),
    Reduction(),
    Argmax(),
    BilinearResize(),
    # What no kernel takes may still work on the layout at hand.
    DataMovement(),
    LayoutAgnostic(),
)

_KERNELS: dict[str, Kernel[Any]] = {kernel.name: kernel for kernel in REWRITES if isinstance(kernel, Kernel)}


def write(group: FusedGroup, cpu: Microarchitecture, cores: int) -> Any:
    """Return the statement of a fused group."""
    kernel, form = _kernel_of(group)
    return kernel.write(group, form, cpu, _tasks(kernel, form, cpu, cores))


def operations(group: FusedGroup) -> int:
    """Count a group's kernel operations, without fused ones."""
    kernel, form = _kernel_of(group)
    return kernel.operations(form)


def writes_once(group: FusedGroup, cpu: Microarchitecture, cores: int) -> bool:
    """Test if a group computes every element once."""
    kernel, form = _kernel_of(group)
    return kernel.writes_once(group, form, cpu, _tasks(kernel, form, cpu, cores))


def _kernel_of(group: FusedGroup) -> tuple[Kernel[Any], Any]:
    kernel = _KERNELS[group.placeholder.kernel]
    return kernel, msgspec.json.decode(group.placeholder.form, type=kernel.form)


def _tasks(kernel: Kernel[Any], form: Any, cpu: Microarchitecture, cores: int) -> int:
    """Return the number of cores worth waking."""
    # Waking a core takes microseconds, so each piece has to last longer.
    return max(1, min(cores, kernel.operations(form) * kernel.effort // cpu.task_operations))
