"""Model options: its name, reading and comparison."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pipeline
from pipeline.commands.shared import card_options, console, values
from pipeline.errors import ArgumentError, PlanError

if TYPE_CHECKING:
    from pipeline.split.graph import Graph
    from pipeline.split.symbolic_model import OpenModel
    from pipeline.workflow.verify import Verification

# Operators of one island that are named.
LISTED = 5

RANDOM = "random"
"""Value of a bare ``--verify``."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model and how to read it."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="an ONNX file, a TFLite model, an exported PyTorch program, a Relay program, or a Relax module",
    )
    reading_arguments(parser)
    parser.add_argument(
        "--size",
        metavar="NAME=EXTENT",
        type=values.size,
        action="append",
        default=[],
        help="extents for the names in --shape, such as N=16 or H=224,W=224, or ranges, such as N=1..32; may be "
        "repeated: the first one is planned",
    )


def reading_arguments(parser: argparse._ActionsContainer) -> None:
    """Add how a model is read at one size."""
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
        "--params",
        metavar="FILE",
        help="parameters of a Relay program or Relax module: of relay.save_param_dict, or a .npz file",
    )
    parser.add_argument(
        "--state",
        metavar="OUTPUT:INPUT",
        type=values.state,
        action="append",
        default=[],
        help="an output that is the input of the stream's next frame, such as hn:h; pipelines keep the value for each "
        "stream, and begin with zeros; may be repeated",
    )
    parser.add_argument(
        "--no-fallback",
        action="store_true",
        help="refuse a model with operators that cannot be compiled, instead of leaving them to ONNX Runtime or LiteRT",
    )


def verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the comparison with the model format's library."""
    group = parser.add_argument_group("how the model as it was read is compared with its own library")
    group.add_argument(
        "--verify",
        metavar="PATH",
        nargs="?",
        const=RANDOM,
        help="compare the model as it was read with ONNX Runtime, PyTorch or LiteRT, whichever its format belongs to, "
        "on random input, or on the frames of a file or folder: images, .npy or .npz",
    )
    group.add_argument(
        "--tolerance",
        metavar="SHARE|STEPS",
        type=values.tolerance,
        help="allowed error: of floats a share of the output's largest value (default: 1e-4), of quantised integers "
        "steps of their scale, such as 3steps (default: 2steps), or both, such as 1e-3,3steps",
    )


def no_verify_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option to switch off a default comparison."""
    parser.add_argument(
        "--no-verify",
        action="store_true",
        help="do not compare with the model's own library, which is done on random input if that is installed",
    )


def check_verify(options: argparse.Namespace) -> None:
    """Raise `ArgumentError` for a comparison requested and forbidden."""
    if options.verify and options.no_verify:
        raise ArgumentError("--verify and --no-verify contradict each other; give one of them")


def frames_to_verify(graph: Graph, options: argparse.Namespace) -> bool | list[Any] | None:
    """Return the comparison's frames or a truth value; None where possible."""
    if options.no_verify:
        return False
    return frames(graph, options) or (True if options.verify else None)


def verify(graph: Graph, options: argparse.Namespace) -> Verification | None:
    """Compare a graph with its model if requested; raise on a difference."""
    if not options.verify:
        return None
    with console.progress("comparing"):
        return pipeline.verify(graph, tolerance=options.tolerance, frames=frames(graph, options))


def frames(graph: Graph, options: argparse.Namespace) -> list[Any] | None:
    """Return the frames of ``--verify``; None for a random one."""
    if options.verify in (None, RANDOM):
        return None
    from pipeline.io.sources.files import Files
    from pipeline.split.output_quantization import input_quantization

    preparation = card_options.preparation(options, graph, graph.card)
    files = Files([Path(options.verify)], graph.frame_inputs, preparation, input_quantization(graph))
    return [frame.inputs for frame in files]


def verification_text(result: Verification) -> str:
    """Describe a verification."""
    text = (
        f"against {result.reference}: largest error {result.largest_error:.3g}, {result.relative:.3g} of the largest "
        f"value; allowed is {result.tolerance:.3g}"
    )
    if result.steps is not None:
        text = (
            f"against {result.reference}: largest error {result.steps:.3g} steps; allowed are {result.allowed_steps:g}"
        )
    if result.frames > 1:
        text += f"; the worst of {result.frames} frames, number {result.worst_frame}"
    return text + "".join(f"; not compared, since it is random: {name}" for name in result.uncompared)


def show_islands(graph: Graph, share: float) -> None:
    """Name the operators in the model's own runtime, with reasons and times."""
    from pipeline.core.packed_model import RUNTIMES

    kinds = {name: operator.kind for operator in graph.operators for name in operator.outputs}
    groups: dict[tuple[str, str], list[str]] = {}
    for island in graph.islands:
        groups.setdefault((RUNTIMES[kinds[island.tensor]].title, island.reason), []).extend(island.operators)
    out = console.console()
    for (runtime, reason), operators in groups.items():
        names = ", ".join(operators[:LISTED])
        remainder = f" and {len(operators) - LISTED} more" * (len(operators) > LISTED)
        out.print(f"{runtime} computes {names}{remainder}: {reason}", soft_wrap=True)
    if groups:
        out.print(f"Together they take {share:.0%} of the time; --no-fallback refuses such a model")


def read(options: argparse.Namespace) -> Graph:
    """Read the options' model, open shapes at their first size."""
    return read_open(options)[0]


def read_open(options: argparse.Namespace) -> tuple[Graph, OpenModel | None]:
    """Read the options' graph at its first size, with the open model."""
    # Before the model is read, which may take a minute: an empty range is found at once.
    requests = sizes(options)
    from pipeline.split.graph import Graph

    with console.progress(f"reading {options.model}"):
        model = pipeline.read(
            options.model,
            shapes(options),
            options.params,
            states=dict(options.state),
            fallback=not options.no_fallback,
        )
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
    """Return the sizes from the options."""
    from pipeline.core.shapes import sizes_in

    return [dict(size) for sizes in options.size for size in sizes_in(sizes)]


def shapes(options: argparse.Namespace) -> dict[str, list[int | str]]:
    """Return the extents from the options, by input."""
    return dict(options.shape)
