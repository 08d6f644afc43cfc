"""Chain: a user's list of models becomes one graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.errors import ModelError

if TYPE_CHECKING:
    from pipeline.split.graph import Graph


def chain(
    models: Sequence[Any] | Mapping[str, Any],
    connect: Mapping[str, str] | None = None,
    *,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """Connect models, from files or objects, to one graph.

    Parameters
    ----------
    models : sequence, or mapping of str to object
        Models in order, in any form that `pipeline.read` takes or returns; a mapping gives names to the models, which
        are called as their files otherwise.
    connect : mapping of str to str, optional
        Output for each input, both as ``"model.tensor"``, such as ``{"head.image": "backbone.features"}``.  Inputs that
        are not in it read the latest earlier model's output of the same name; those without one are inputs of the
        chain, one input for all models that call it the same.
    outputs : sequence of str, optional
        Outputs for the caller, as ``"model.tensor"``; by default all outputs that no model reads.

    Returns
    -------
    Graph
        Graph for `pipeline.plan`, whose ``stages="models"`` makes a stage of each model.  Operators of two models are
        never fused.  Names that two models share have the later model's name in front, as ``"model.tensor"``.

    Raises
    ------
    ModelError
        If a model cannot be read, has shapes that vary, or is not connected to those before it; if a name is unknown,
        or connected tensors differ in shape or dtype.

    Examples
    --------
    >>> graph = pipeline.chain(["backbone.onnx", "head.tflite"], {"head.image": "backbone.features"})  # doctest: +SKIP
    """
    from pipeline.split.chain import join

    # A text is a sequence, too: of letters, each of which would be looked for as a file.
    if isinstance(models, str) or not isinstance(models, Sequence | Mapping):
        raise ModelError(f"a chain is a list of models, or a mapping from names to models, not {models!r}")
    graphs = [_graph(model) for model in (models.values() if isinstance(models, Mapping) else models)]
    names = list(models) if isinstance(models, Mapping) else _file_names(graphs)
    return join(dict(zip(names, graphs, strict=True)), connect, outputs)


def _graph(model: Any) -> Graph:
    from pipeline.split.graph import Graph
    from pipeline.split.reading import read_model
    from pipeline.split.symbolic_model import OpenModel

    graph = model if isinstance(model, Graph | OpenModel) else read_model(model)
    if isinstance(graph, OpenModel):
        raise ModelError(f"{graph.name!r} has shapes that vary; a chain takes it at a size: model.at(...)")
    return graph


def _file_names(graphs: Sequence[Graph]) -> list[str]:
    from pipeline.model.passes.naming import unique

    names: set[str] = set()
    # One file may be in a chain twice.
    return [unique(graph.name, names) for graph in graphs]
