"""Rounding: a quantised model of any format with power-of-two scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.model_card import ModelCard
from pipeline.core.scale_limits import ScaleLimits
from pipeline.quantization.loss import Loss, compare_losses

if TYPE_CHECKING:
    from pipeline.split.graph import Graph

Frames = Sequence[Mapping[str, np.ndarray]]


def round_scales(  # noqa: PLR0913 - the last by keyword
    model: Any,
    output: Path,
    shapes: Mapping[str, Sequence[Any]] | None = None,
    params: Mapping[str, Any] | str | Path | None = None,
    limits: ScaleLimits | None = None,
    *,
    card: ModelCard | None = None,
) -> None:
    """Write a quantised model with power-of-two scales, as Relax.

    Weights and biases are quantised anew, so that they mean the same; zero points go to the middle of their range.
    Bytes that enter or leave the model remain as they are. Raises `ModelError` if the model cannot be read, or
    quantises nothing. `shapes` and `params` are arguments of `pipeline.read`; the limits are VTA's by default, and a
    card replaces the model's own.
    """
    from pipeline import frontends
    from pipeline.frontends import formats, relax, relay
    from pipeline.quantization.relax_powers import restrict_scales

    if frontends.kind(model) is formats.RELAY:
        # In whole numbers, scales are products of these, which cannot be told apart.
        source = relay.load(Path(model), shapes, params, real_arithmetic=True)
    else:
        source = frontends.load(model, shapes, params)
    source = restrict_scales(source, limits or ScaleLimits())
    relax.save(replace(source, card=card or source.card), output)


def measure_loss(original: Graph, rounded: Graph, frames: Frames, labels: np.ndarray | None = None) -> Loss:
    """Compare both models on this machine's CPU; raises as `compare_losses`."""
    return compare_losses(_outputs(original, frames), _outputs(rounded, frames), labels)


def _outputs(graph: Graph, frames: Frames) -> list[np.ndarray]:
    """Return a graph's first output for each frame."""
    import pipeline

    first = graph.outputs[0].name
    # No check of parity: this run is what tells how far results are apart.
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)
    with pipeline.load(bundle) as running:
        outputs = [result[first] if isinstance(result, dict) else result for result in running.map(frames)]
        return [np.asarray(output, np.float64) for output in outputs]
