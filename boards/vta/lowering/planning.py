"""Planning: an operator group's time on VTA, or its reason against it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from boards.vta import target
from boards.vta.compiler.layers import Convolution
from boards.vta.compiler.network import Layer
from boards.vta.lowering.stage import Binding, lower
from boards.vta.lowering.values import Unsupported
from boards.vta.simulator import timing


def verdict(
    inputs: Sequence[Any],
    bindings: Sequence[Binding],
    outputs: Sequence[Any],
    device_target: Mapping[str, object] | None,
) -> tuple[float, str]:
    """Return the estimated seconds of operators, and a reason against VTA.

    Returns
    -------
    seconds : float
        Infinite if there is a reason.
    reason : str
        Empty if there is none.
    """
    try:
        stage = lower(inputs, bindings, outputs)
        for step in stage.steps:
            _check_channels(step.layer, target.fewest_channels(device_target))
        # Compiled as for the board: what counts are tiles and what overlaps, which no number of operations tells.
        cycles = timing.estimate(stage.network(target.config(device_target)).program)
    except Unsupported as error:
        return math.inf, str(error)
    return (cycles.seconds if cycles and stage.steps else 0.0), ""


def _check_channels(layer: Layer, fewest: int) -> None:
    # Meant are first convolutions on pictures, not dense layers (a kernel as large as the image) or grouped ones.
    if (
        isinstance(layer, Convolution)
        and layer.groups == 1
        and layer.inputs[0] < fewest
        and layer.kernel != layer.inputs[1:]
    ):
        raise Unsupported(
            f"its input has fewer than {fewest} channels, so that most of VTA would idle; "
            f"'fewest_channels = {layer.inputs[0]}' in VTA's target, or --target, asks for it"
        )
