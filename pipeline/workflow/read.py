"""The verb read: a model becomes a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from pipeline.errors import ModelError

if TYPE_CHECKING:
    from pipeline.core.shapes import Shapes
    from pipeline.split.graph import Graph
    from pipeline.split.symbolic_model import OpenModel


@overload
def read(
    model: Any,
    shapes: Mapping[str, Sequence[int] | int] | None = ...,
    params: Mapping[str, Any] | str | Path | None = ...,
    *,
    states: Mapping[str, str] | None = ...,
    verify: bool = ...,
    fallback: bool = ...,
) -> Graph: ...


@overload
def read(
    model: Any,
    shapes: Shapes,
    params: Mapping[str, Any] | str | Path | None = ...,
    *,
    states: Mapping[str, str] | None = ...,
    verify: bool = ...,
    fallback: bool = ...,
) -> Graph | OpenModel: ...


def read(  # noqa: PLR0913 - the last ones by keyword
    model: Any,
    shapes: Shapes | None = None,
    params: Mapping[str, Any] | str | Path | None = None,
    *,
    states: Mapping[str, str] | None = None,
    verify: bool = False,
    fallback: bool = True,
) -> Graph | OpenModel:
    """Read a model, fold constants and batch norms, and return its graph.

    Parameters
    ----------
    model : str, Path, onnx.ModelProto, torch.export.ExportedProgram, tvm.IRModule, or tvm.relax.Function
        An ONNX file, a TFLite model, a file of ``torch.export.save``, a Relay program (text or JSON), or the JSON of a
        Relax module, whose content says which; or an ONNX model, exported PyTorch program or Relax module itself.
    shapes : mapping of str to sequence of (int or str), or to int, optional
        Extents for inputs whose shape is symbolic in the model, by input, or a number for one of the model's own names
        for extents, such as ``{"height": 320}``; names, such as ``["N", 3, 224, 224]``, for extents that shall vary.
        A batch that remains open becomes 1, and ``graph.notes`` says so.
    params : mapping, str or Path, optional
        Parameters of a Relay program or Relax module by name: arrays, or a file of ``relay.save_param_dict`` or
        ``numpy.savez``.  A parameter without a value here is an input of the model.
    states : mapping of str to str, optional
        Inputs that hold state, each with the output that it reads in the stream's next frame, such as ``{"h": "hn"}``.
        Pipelines then keep the value for each stream; see `pipeline.Pipeline.submit`.  It begins with zeros.
    verify : bool
        Compare with the library that the format belongs to, on random input; see `pipeline.verify`.  That needs the
        graph compiled, which takes longer than reading it; by default it is compared where it is built anyway.
    fallback : bool
        Leave operators that cannot be compiled to the model's own runtime, where that is installed: ONNX Runtime for
        ONNX models at a fixed size, LiteRT for TFLite models, PyTorch for exported programs.  ``graph.islands`` has
        them, with the reasons.  Otherwise such a model is refused, or TFLite's quantised operators are approximated.

    Returns
    -------
    Graph or OpenModel
        Graph; with names in `shapes`, a model that has a graph at each size: ``model.at(N=16)``.

    Raises
    ------
    ModelError
        If the file is missing, not a model, or uses operators that are not supported; all of them are named.
    BuildError
        If the model as it was read computes something else.
    """
    from pipeline.split.graph import Graph
    from pipeline.split.reading import read_model

    graph = read_model(model, shapes, params, states=states, fallback=fallback)
    if verify:
        # Under another name: the argument has taken its own.
        from pipeline.workflow.verify import verify as verify_graph

        if not isinstance(graph, Graph):
            raise ModelError("a model is verified at a size: read it with numbers for all extents")
        verify_graph(graph, model)
    return graph
