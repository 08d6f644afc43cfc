"""``soc-pipeline build``: compile a model's stages into a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pipeline
from pipeline.commands import tune
from pipeline.commands.shared import card_options, card_view, console, models, plan_options, values, vendor_commands
from pipeline.errors import BundleError
from pipeline.executor.signature import sign

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.measure.kernel_coverage import GeneralKernel, StageGeneral

HELP = (
    "Compile each stage of a plan for its device, compare the stages with the unsplit model, and save them as a bundle."
)
EXAMPLE = "soc-pipeline build model.onnx --plan plan.json -o model.bundle"

# More would hide the lines below; models of unusual operators have dozens.
LISTED = 6
"""Kernels without a rule that are named; ``--json`` has all."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    models.verify_arguments(parser)
    models.no_verify_argument(parser)
    card_options.arguments(parser)
    plan_options.file_argument(parser)
    vendor_commands.argument(parser)
    plan_options.arguments(parser)
    tune.database_arguments(parser)
    parser.add_argument("-o", "--output", metavar="FOLDER", required=True, help="the bundle to write")
    parser.add_argument(
        "--sign", metavar="KEY", type=Path, help="sign the bundle with this private key of OpenSSH, such as ed25519"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--other-sizes",
        choices=("refuse", "pad", "symbolic"),
        default="refuse",
        help="frames of sizes without --size: refuse them (default), fill them up to the next larger size and crop the "
        "result, or run them in a slower build for any size",
    )
    parser.add_argument("--seed", type=values.seed, default=0, help="of the random frame that is compared (default: 0)")


def run(options: argparse.Namespace) -> int:
    """Read, plan if need be, compile, check and save."""
    # What can be refused is refused before minutes of compiling.
    if options.sign:
        sign(b"", options.sign)
    _check_output(Path(options.output))
    plan_options.check_file(options)
    vendor_commands.check(options)
    models.check_verify(options)
    tuning = tune.database_for(options)
    graph, model = models.read_open(options)
    card = card_options.complete_card(options, graph, graph.card)
    card_view.check_card(card, graph)
    plan = plan_options.load_or_make_plan(graph, options)
    with console.progress("building") as step:
        bundle = pipeline.build(
            model or graph,
            plan,
            sizes=models.sizes(options),
            other_sizes=options.other_sizes,
            card=card,
            verify=models.frames_to_verify(graph, options),
            tolerance=options.tolerance,
            seed=options.seed,
            tuning=tuning,
            precision=options.precision,
            weights=options.weights,
            progress=step,
        )
        step("saving")
        bundle.save(options.output, sign=options.sign)
    if options.json:
        console.print_json(_facts(bundle, options.output))
    else:
        _show(bundle, tuning, options.output)
    return 0


def _show(bundle: Bundle, tuning: Path | None, path: str) -> None:
    out = console.console()
    if bundle.verification:
        out.print(models.verification_text(bundle.verification), soft_wrap=True)
    else:
        out.print(f"not compared with another library: {bundle.unverified}", soft_wrap=True)
    if bundle.parity:
        subject = f"{len(bundle.plan.stages)} stages against the unsplit model"
        error, value = bundle.parity.largest_error, bundle.parity.largest_value
        of_frame = f"; of {bundle.parity.frame}" if bundle.parity.frame else ""
        out.print(f"{subject}: largest error {error:.3g}, largest output {value:.3g}{of_frame}")
    if tuning is not None:
        out.print(f"Tuned kernels: {tuned_kernels(bundle)}, of {tuning}", soft_wrap=True)
    if layers := float32_layers(bundle):
        out.print(f"Layers that stay in float32: {', '.join(layers)}", soft_wrap=True)
    if errors := winograd_errors(bundle):
        count = f"{len(errors)} convolution{'s' if len(errors) > 1 else ''}"
        largest = max(bound for _, bound in errors)
        out.print(f"By Winograd's transforms: {count}, rounding errors up to {largest:.2g} of a layer's largest value")
    for stage in bundle.general:
        if stage.kernels:
            out.print(without_rule(stage), soft_wrap=True)
    out.print(f"Bundle: {path}", soft_wrap=True)


def tuned_kernels(bundle: Bundle) -> int:
    """Count a new bundle's tuned kernel calls."""
    # Calls of a bundle that was loaded are not known, and count as none.
    return sum(call.rule.startswith("tuned") for code in bundle.codes if code for call in code.calls or ())


def float32_layers(bundle: Bundle) -> list[str]:
    """Tensors whose products stay float32 in stages of another precision."""
    return list(dict.fromkeys(name for stage in bundle.plan.stages for name in stage.options.float32_layers or ()))


def winograd_errors(bundle: Bundle) -> list[tuple[str, float]]:
    """Tensors of a new bundle's convolutions by Winograd's transforms, with the bounds on their errors."""
    calls = [call for code in bundle.codes if code for call in code.calls or ()]
    return [(call.results[0], call.error) for call in calls if call.error]


def without_rule(stage: StageGeneral) -> str:
    """Name a stage's operators without own kernel, with their cost."""
    count = len(stage.operators)
    has, their, take = ("has", "its", "takes") if count == 1 else ("have", "their", "take")
    share = f" and {take} {_percent(stage.share)} of its time" if stage.share is not None else ""
    names = [_name_kernel(kernel) for kernel in stage.kernels[:LISTED]]
    unnamed = len(stage.kernels) - len(names)
    remainder = [f"and {unnamed} more (--json names all)"] if unnamed else []
    subject = f"{count} operator{'s' if count > 1 else ''} {has} no kernel of {their} own"
    return f"{stage.stage}: {subject}{share}: {', '.join(names + remainder)}"


def _name_kernel(kernel: GeneralKernel) -> str:
    share = f" {_percent(kernel.share)}" if kernel.share is not None else ""
    return " + ".join(f"{operator.kind} ({operator.name})" for operator in kernel.operators) + share


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "< 1%"


def _facts(bundle: Bundle, path: str) -> dict[str, Any]:
    return {
        "bundle": path,
        "stages": [stage.name for stage in bundle.plan.stages],
        "inputs": [build.inputs for build in bundle.builds if not build.symbolic],
        "parity": bundle.parity,
        "verification": bundle.verification,
        "unverified": bundle.unverified,
        "tuned_kernels": tuned_kernels(bundle),
        "float32_layers": float32_layers(bundle),
        "winograd": winograd_errors(bundle),
        "without_rule": [
            {"stage": general.stage, "share": general.share, "kernels": general.kernels} for general in bundle.general
        ],
    }


def _check_output(path: Path) -> None:
    """Check for a place to save to, before compiling."""
    if not path.absolute().parent.is_dir():
        raise BundleError(f"cannot save {str(path)!r}: there is no folder {str(path.parent)!r}")
    # A bundle may be replaced; any other folder may hold something dear.
    if path.exists() and not (path / "manifest.json").is_file():
        raise BundleError(f"{str(path)!r} exists and is not a bundle; choose another name")
