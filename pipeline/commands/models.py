"""The options that name a model, how to read it, and what to compare it with."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pipeline
from pipeline.commands import common
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from pipeline.split.graph import Graph
    from pipeline.split.open_model import OpenModel
    from pipeline.verification import Verification


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
        action="append",
        default=[],
        help="extents for an input with a symbolic shape, such as data=1,3,224,224, or with names for those that vary, "
        "such as data=N,3,224,224; may be repeated",
    )
    parser.add_argument(
        "--size",
        metavar="NAME=EXTENT",
        action="append",
        default=[],
        help="extents for the names in --shape, such as N=16 or H=224,W=224; may be repeated: the first one is planned",
    )
    parser.add_argument(
        "--params",
        metavar="FILE",
        help="parameters of a Relay program or Relax module: of relay.save_param_dict, or a .npz file",
    )


def verify_argument(parser: argparse.ArgumentParser) -> None:
    """Add the comparison with the library that the model's format belongs to."""
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare the model as it was read with ONNX Runtime, PyTorch or LiteRT, whichever its format belongs to, "
        "on random input",
    )


def verified(graph: Graph, options: argparse.Namespace) -> Verification | None:
    """Compare a graph with the model it was read from, if the options say so; one that differs is an error."""
    if not options.verify:
        return None
    with common.progress("comparing"):
        return pipeline.verify(graph, options.model)


def verification_text(found: Verification) -> str:
    """Say what a verification found."""
    return (
        f"against {found.reference}: largest error {found.largest_error:.3g}, {found.relative:.3g} of the largest "
        f"value; allowed is {found.tolerance:.3g}"
    )


def read(options: argparse.Namespace) -> Graph:
    """Read the model that the options name, at the first size if its shapes vary."""
    return read_open(options)[0]


def read_open(options: argparse.Namespace) -> tuple[Graph, OpenModel | None]:
    """Read the model that the options name: at the first size, and the model itself if its shapes vary."""
    wanted = sizes(options)
    from pipeline.split.graph import Graph

    with common.progress(f"reading {options.model}"):
        found = pipeline.read(options.model, shapes(options), options.params)
        if isinstance(found, Graph):
            if wanted:
                raise PlanError("--size gives extents for names in --shape, such as --shape data=N,3,224,224")
            return found, None
        if not wanted:
            names = ", ".join(f"{name}=16" for name in found.shapes.names)
            raise PlanError(f"--shape has names for extents that vary; give at least one size, such as --size {names}")
        return found.at(wanted[0]), found


def sizes(options: argparse.Namespace) -> list[dict[str, int]]:
    """Return the sizes that the options give."""
    return [_size(text) for text in options.size]


def _size(text: str) -> dict[str, int]:
    parts = [part.partition("=") for part in text.split(",")]
    if not all(name.isidentifier() and extent.isdecimal() and int(extent) for name, _, extent in parts):
        raise PlanError(f"--size {text!r} is not NAME=EXTENT with an extent of at least 1, such as N=16 or H=224,W=224")
    return {name: int(extent) for name, _, extent in parts}


def shapes(options: argparse.Namespace) -> dict[str, list[int | str]]:
    """Return the extents that the options give, by input."""
    return dict(_shape(text) for text in options.shape)


def _shape(text: str) -> tuple[str, list[int | str]]:
    name, separator, extents = text.rpartition("=")
    shape = [int(each) if each.isdecimal() else each for each in extents.split(",")]
    if not separator or not all(each.isidentifier() if isinstance(each, str) else each > 0 for each in shape):
        raise PlanError(
            f"--shape {text!r} is not INPUT=EXTENTS with extents of at least 1, such as data=1,3,224,224, or names for "
            "those that vary"
        )
    return name, shape
