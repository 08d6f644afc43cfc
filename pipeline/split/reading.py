"""Model -> graph: read by its frontend, cleaned, taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline import frontends
from pipeline.core.shapes import Shapes, is_open
from pipeline.errors import ModelError
from pipeline.frontends.input_shapes import check_dtype
from pipeline.model.passes.normalise import clean
from pipeline.split.graph import Graph, from_relax
from pipeline.split.states import with_states
from pipeline.split.symbolic_model import OpenModel, open_model


def read_model(
    model: Any,
    shapes: Shapes | None = None,
    params: Mapping[str, Any] | str | Path | None = None,
    *,
    states: Mapping[str, str] | None = None,
    fallback: bool = True,
) -> Graph | OpenModel:
    """Read a model of any format; see `pipeline.read`."""
    if shapes and is_open(shapes):
        if states:
            raise ModelError("a model that keeps state is read at one size; give numbers for all extents")
        return open_model(model, shapes, params)
    graph = from_relax(clean(frontends.load(model, shapes, params, fallback=fallback)))
    graph = with_states(graph, states or (graph.card.states if graph.card else {}))
    for spec in (*graph.inputs, *graph.outputs):
        check_dtype(repr(graph.name), spec.name, spec.dtype)
    return graph
