"""``soc-pipeline build``: compile a model's stages into a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import pipeline
from pipeline.commands import common
from pipeline.errors import BundleError, PlanError

if TYPE_CHECKING:
    from pipeline.plans import Plan
    from pipeline.split.graph import Graph

HELP = (
    "Compile each stage of a plan for its device, compare the stages with the unsplit model, and save them as a bundle."
)
EXAMPLE = "soc-pipeline build model.onnx --plan plan.json -o model.bundle"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    common.model_arguments(parser)
    parser.add_argument("--plan", metavar="FILE", help="a plan from 'soc-pipeline plan'; without it, plan now")
    common.plan_arguments(parser)
    parser.add_argument(
        "--tolerance", type=float, default=1e-5, help="allowed error, as a share of the largest output (default: 1e-5)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random frame that is compared (default: 0)")
    parser.add_argument("-o", "--output", metavar="FOLDER", required=True, help="the bundle to write")


def run(options: argparse.Namespace) -> int:
    """Read, plan if need be, compile, check and save."""
    _check_output(Path(options.output))
    _check_plan(options)
    graph = common.read_model(options)
    plan = _plan(graph, options)
    with common.progress("building") as step:
        bundle = pipeline.build(graph, plan, tolerance=options.tolerance, seed=options.seed, progress=step)
        step("saving")
        bundle.save(options.output)
    out = common.console()
    if bundle.parity:
        out.print(
            f"{len(plan.stages)} stages against the unsplit model: largest error {bundle.parity.largest_error:.3g}, "
            f"largest output {bundle.parity.largest_value:.3g}"
        )
    out.print(f"Bundle: {options.output}", soft_wrap=True)
    return 0


def _plan(graph: Graph, options: argparse.Namespace) -> Plan:
    return pipeline.Plan.load(options.plan) if options.plan else common.make_plan(graph, options)


def _check_plan(options: argparse.Namespace) -> None:
    if options.plan and (options.stages != "auto" or options.cut):
        raise PlanError("--plan already says where to cut; leave out --stages and --cut")


def _check_output(path: Path) -> None:
    """Find out before compiling, not after, that there is no place to save to."""
    if not path.absolute().parent.is_dir():
        raise BundleError(f"cannot save {str(path)!r}: there is no folder {str(path.parent)!r}")
    if path.exists() and not (path / "manifest.json").is_file():
        raise BundleError(f"{str(path)!r} exists and is not a bundle; choose another name")
