"""``soc-pipeline split``: write a plan's stages as separate models."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import pipeline
from pipeline.commands.shared import card_options, console, models, plan_options, values

if TYPE_CHECKING:
    from pipeline.workflow.export_stages import ExportedStages

HELP = (
    "Write each stage of a plan as an ONNX or TFLite model, for other tool chains, and compare them, run one after the "
    "other, with the model."
)
EXAMPLE = "soc-pipeline split model.onnx --plan plan.json -o parts/"

COLUMNS = ("stage", "device", "file", "made", "inputs", "outputs")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    models.verify_arguments(parser)
    models.no_verify_argument(parser)
    card_options.arguments(parser)
    plan_options.file_argument(parser)
    plan_options.arguments(parser)
    parser.add_argument(
        "--format",
        choices=("onnx", "tflite", "source"),
        default="onnx",
        help="onnx (default): the stage's part of an ONNX model, or a new model of its operators; tflite: its part of "
        "a TFLite model; source: tflite of a TFLite model, or else onnx",
    )
    parser.add_argument("--seed", type=values.seed, default=0, help="of the random frame that is compared (default: 0)")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", required=True, help="the folder to write, or to replace if 'split' made it"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Read, plan if need be, write and compare."""
    from pipeline.workflow.stage_files import check_target

    # What can be refused is refused before the model is read.
    check_target(Path(options.output).resolve())
    plan_options.check_file(options)
    models.check_verify(options)
    graph = models.read(options)
    plan = plan_options.load_or_make_plan(graph, options)
    with console.progress("writing") as step:
        stages = pipeline.export_stages(
            graph,
            plan,
            options.output,
            format=options.format,
            verify=models.frames_to_verify(graph, options),
            tolerance=options.tolerance,
            seed=options.seed,
            progress=step,
        )
    if options.json:
        facts = {"verification": stages.verification, "unverified": stages.unverified}
        console.print_json({"folder": options.output, "manifest": stages.manifest, **facts})
    else:
        _show(stages, options.output)
    return 0


def _show(stages: ExportedStages, folder: str) -> None:
    out = console.console()
    table = console.table(f"{stages.manifest.model} in stages", *COLUMNS)
    for stage in stages.manifest.stages:
        ends = [", ".join(map(str, specs)) for specs in (stage.inputs, stage.outputs)]
        table.add_row(stage.stage, stage.device, stage.file, stage.origin, *ends)
    out.print(table)
    if stages.verification:
        out.print(models.verification_text(stages.verification), soft_wrap=True)
    else:
        out.print(f"not compared: {stages.unverified}", soft_wrap=True)
    out.print(f"Stages: {folder}", soft_wrap=True)
