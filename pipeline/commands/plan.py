"""``soc-pipeline plan``: cut a model into stages."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipeline.commands import common

if TYPE_CHECKING:
    from pipeline.plans import Plan

HELP = "Cut a model into stages, predict their times, and say whether pipelining helps."
EXAMPLE = "soc-pipeline plan model.onnx --stages 2 --measure -o plan.json"

WORTHWHILE = 1.1
"""A predicted gain below this is not called one."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    common.model_arguments(parser)
    common.plan_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the plan as JSON")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Read, plan, print and save."""
    from pipeline.plans import encode

    plan = common.make_plan(common.read_model(options), options)
    if options.output:
        plan.save(options.output)
    if options.json:
        print(encode(plan).decode(), end="")
        return 0
    out = common.console()
    table = common.table(f"{plan.model} on {plan.board.name}", *common.STAGE_COLUMNS)
    for row in common.stage_rows(plan):
        table.add_row(*row)
    out.print(table)
    out.print(verdict(plan))
    if options.output:
        out.print(f"Plan: {options.output}", soft_wrap=True)
    return 0


def verdict(plan: Plan) -> str:
    """Say what the plan is predicted to bring."""
    basis = "measured" if plan.measured else "estimated"
    pace = f"{1 / plan.slowest:.1f} frames/s ({basis}), {plan.speedup:.2f} times the unsplit model on one core"
    if len(plan.stages) == 1:
        return f"One stage: nothing is pipelined. Predicted: {pace}."
    if plan.speedup < WORTHWHILE:
        return f"Pipelining will not help here: {pace}. Use --stages 1, or cut where the stages' times are more equal."
    slowest = max(plan.stages, key=lambda stage: stage.seconds)
    return f"Predicted: {pace}; the bottleneck is {slowest.name}."
