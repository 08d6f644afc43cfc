"""OpenModel: a model of varying extents; a size makes it a graph."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import frontends
from pipeline.core.plan.plan import Plan
from pipeline.core.shapes import OpenShapes, Shapes, Size, describe_size, has_name
from pipeline.errors import InputError, ModelError, PlanError, near
from pipeline.model.model_source import ModelSource
from pipeline.model.passes.bindings import array, operands
from pipeline.model.passes.normalise import clean
from pipeline.split.graph import Graph, from_relax
from pipeline.system.memory import contents


@dataclass(frozen=True)
class OpenModel:
    """A model of `pipeline.read` with named, varying extents."""

    model: Any = field(repr=False)
    """Original, which is read anew each time."""
    shapes: OpenShapes
    """Shapes of the inputs that have such extents."""
    params: Mapping[str, Any] | str | Path | None = field(default=None, repr=False)
    """Parameters, as for `pipeline.read`."""
    extents: Shapes = field(default_factory=dict)
    """Other extents from the caller: shapes without names in them, and numbers for the model's own names."""

    @property
    def name(self) -> str:
        """Name of the model."""
        return Path(self.model).stem if isinstance(self.model, str | Path) else "model"

    def at(self, size: Size | None = None, **extents: int) -> Graph:
        """Read the model at a size: ``at(N=16)`` or ``at({"N": 16})``.

        Raises `ModelError` if an extent is missing, unknown or no whole number above 0, or the model cannot be read so.
        """
        shapes = self.shapes.at(self.check_size({**(size or {}), **extents}))
        module = frontends.load(self.model, {**self.extents, **shapes}, self.params)
        graph = from_relax(clean(module))
        if graph.states:
            raise ModelError(f"{self.name!r} keeps state and is read at one size; give numbers for all extents")
        return graph

    def symbolic(self, size: Size) -> Graph:
        """Return the graph at a size, its operators open to others; `ModelError` if the model cannot be read so."""
        if not (entry := frontends.kind(self.model)).symbolic:
            raise ModelError(
                f"{self.name!r} is {entry}, which cannot be built for any size at once; name the sizes "
                "that it shall be built for"
            )
        model = frontends.load(self.model, {**self.extents, **self.shapes.inputs}, self.params, fallback=False)
        # The library runs the model at one size only.
        return from_relax(clean(replace(model, original=None)), size)

    def check_size(self, size: Mapping[str, Any]) -> dict[str, int]:
        """Return the size in the names' order; `ModelError` if foreign."""
        names = self.shapes.names
        for name, extent in size.items():
            if name not in names:
                raise ModelError(f"no extent is called {name!r}; there are {', '.join(names)}{near(name, names)}")
            if isinstance(extent, bool) or not isinstance(extent, int | np.integer) or extent < 1:
                raise ModelError(f"the extent {name} is {extent!r}; it must be a whole number of at least 1")
        if missing_names := [name for name in names if name not in size]:
            subject = f"{describe_size(size)} says" if size else "the size does"
            raise ModelError(f"{subject} not what {missing_names[0]} is; give all of {', '.join(names)}")
        return {name: int(size[name]) for name in names}

    def size_of(self, plan: Plan) -> dict[str, int]:
        """Return a plan's size; `PlanError` for another model."""
        shapes = {spec.name: spec.shape for spec in plan.inputs}
        try:
            return self.shapes.size(shapes)
        except (InputError, KeyError) as error:
            raise PlanError(f"the plan is for another model than {self.name!r}: {error}; plan again") from None

    def complete(self, graph: Graph) -> OpenShapes:
        """Return all input shapes of the model from `graph`."""
        open_shapes = self.shapes.inputs
        return OpenShapes({spec.name: open_shapes.get(spec.name, spec.shape) for spec in graph.inputs})


def open_model(model: Any, shapes: Shapes, params: Any = None) -> OpenModel:
    """Return a model with names in its shapes.

    Raises `ModelError` if there is no such file, its format is unknown, or a name is not an identifier.
    """
    # Raises now if there is no such file; otherwise that would show only at the first size.
    frontends.kind(model)
    patterns = {name: tuple(shape) for name, shape in shapes.items() if not isinstance(shape, int) and has_name(shape)}
    for name, pattern in patterns.items():
        for extent in pattern:
            if isinstance(extent, str) and not extent.isidentifier():
                raise ModelError(
                    f"input {name!r}: {extent!r} is neither an extent nor a name for one; give numbers, and names such "
                    "as N"
                )
    extents = {name: shape for name, shape in shapes.items() if name not in patterns}
    return OpenModel(model, OpenShapes(patterns), params, extents)


def with_source(graph: Graph, model: Any) -> Graph:
    """Return the graph with its model for comparison, if runnable."""
    if frontends.kind(model).library is None:
        return graph
    return replace(graph, sources=(ModelSource.of(model, graph.inputs, graph.outputs),))


def content(graph: Graph) -> str:
    """Return a SHA-256 of the graph's structure and constants."""
    digest = hashlib.sha256(graph.digest.encode())
    # Also attributes, such as strides, of which the structure's digest says nothing.
    for line in (line for operator in graph.operators for line in operator.lines):
        digest.update(str(getattr(line.value, "attrs", "")).encode())
        for values in map(array, operands(line.value)):
            if values is not None:
                digest.update(contents(values))
    return digest.hexdigest()
