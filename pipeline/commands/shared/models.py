"""The options that name a model, how to read it, and what to compare it with."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pipeline
from pipeline.commands.shared import console, values
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from pipeline.split.graph import Graph
    from pipeline.split.symbolic_model import OpenModel
    from pipeline.workflow.verify import Verification

# Operators of one island that are named.
LISTED = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model and how to read it."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="an ONNX file, a TFLite model, an exported PyTorch program, a Relay program, or a Relax module",
    )
    parser.add_argument(
        "--shape",
        metavar="INPUT=EXTENTS",
        type=values.shape,
        action="append",
        default=[],
        help="extents for an input with a symbolic shape, such as data=1,3,224,224, or with names for those that vary, "
        "such as data=N,3,224,224; or an extent by the model's name for it, such as height=320; may be repeated",
    )
    parser.add_argument(
        "--size",
        metavar="NAME=EXTENT",
        type=values.size,
        action="append",
        default=[],
        help="extents for the names in --shape, such as N=16 or H=224,W=224, or ranges, such as N=1..32; may be "
        "repeated: the first one is planned",
    )
    parser.add_argument(
        "--params",
        metavar="FILE",
        help="parameters of a Relay program or Relax module: of relay.save_param_dict, or a .npz file",
    )
    parser.add_argument(
        "--no-fallback",
        action="store_true",
        help="refuse a model with operators that cannot be compiled, instead of leaving them to ONNX Runtime or LiteRT",
    )


def verify_argument(parser: argparse.ArgumentParser) -> None:
    """Add the comparison with the library that the model's format belongs to."""
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare the model as it was read with ONNX Runtime, PyTorch or LiteRT, whichever its format belongs to, "
        "on random input",
    )


def verify(graph: Graph, options: argparse.Namespace) -> Verification | None:
    """Compare a graph with the model it was read from, if the options say so; one that differs is an error."""
    if not options.verify:
        return None
    with console.progress("comparing"):
        return pipeline.verify(graph, options.model)


def verification_text(result: Verification) -> str:
    """Describe a verification."""
    return (
        f"against {result.reference}: largest error {result.largest_error:.3g}, {result.relative:.3g} of the largest "
        f"value; allowed is {result.tolerance:.3g}"
    )


def show_islands(graph: Graph) -> None:
    """Name the operators that the model's own runtime computes, and why."""
    for island in graph.islands:
        names = ", ".join(island.operators[:LISTED]) + ", ..." * (len(island.operators) > LISTED)
        console.console().print(f"ONNX Runtime computes {names}: {island.reason}", soft_wrap=True, markup=False)


def read(options: argparse.Namespace) -> Graph:
    """Read the model that the options name, at the first size if its shapes vary."""
    return read_open(options)[0]


def read_open(options: argparse.Namespace) -> tuple[Graph, OpenModel | None]:
    """Read the model that the options name: at the first size, and the model itself if its shapes vary."""
    # Before the model is read, which may take a minute: an empty range is found at once.
    requests = sizes(options)
    from pipeline.split.graph import Graph

    with console.progress(f"reading {options.model}"):
        model = pipeline.read(options.model, shapes(options), options.params, fallback=not options.no_fallback)
        if isinstance(model, Graph):
            graph, open_model = model, None
            if requests:
                raise PlanError("--size gives extents for names in --shape, such as --shape data=N,3,224,224")
        elif requests:
            # Plans are for one size; the others are built by the same plan.
            graph, open_model = model.at(requests[0]), model
        else:
            names = ", ".join(f"{name}=16" for name in model.shapes.names)
            raise PlanError(f"--shape has names for extents that vary; give at least one size, such as --size {names}")
    for note in graph.notes:
        console.notice(f"note: {note}")
    return graph, open_model


def sizes(options: argparse.Namespace) -> list[dict[str, int]]:
    """Return the sizes that the options give."""
    from pipeline.core.shapes import sizes_in

    return [dict(size) for sizes in options.size for size in sizes_in(sizes)]


def shapes(options: argparse.Namespace) -> dict[str, list[int | str]]:
    """Return the extents that the options give, by input."""
    return dict(options.shape)
