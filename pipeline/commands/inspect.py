"""``soc-pipeline inspect``: a model's operators, legal cuts and card."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.commands.shared import card_options, card_view, console, models
from pipeline.errors import InputError
from pipeline.system.distribution import IS_FULL

if TYPE_CHECKING:
    from pipeline.split.cuts import Cut
    from pipeline.split.graph import Graph

HELP = (
    "Print a model's operators with their costs, its legal cuts with what crosses them, and what it wants of a picture "
    "and gives; of a bundle its stages and that."
)
EXAMPLE = "soc-pipeline inspect model.onnx"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    models.verify_arguments(parser)
    card_options.arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(options: argparse.Namespace) -> int:
    """Read, estimate, print."""
    from pipeline.workflow.model_cache import check_model

    if (Path(options.model) / "manifest.sha256").is_file():
        return _inspect_bundle(options)
    if not IS_FULL:
        check_model(Path(options.model))
    import boards
    from pipeline.split.cuts import legal_cuts
    from pipeline.split.planning.problem.costs import estimate, fallback_share

    graph = models.read(options)
    verification = models.verify(graph, options)
    cuts = legal_cuts(graph)
    # Of the first device of this machine: an order of magnitude, and no measurement.
    seconds = estimate(graph, boards.get("host").devices[0])
    card = card_options.complete_card(options, graph, graph.card)
    if options.json:
        facts = {} if verification is None else {"verification": dataclasses.asdict(verification)}
        facts |= card_view.describe_card(card, graph)
        console.print_json(_facts(graph, cuts, seconds) | facts)
        return 0
    out = console.console()
    out.print(_operator_table(graph, seconds, cuts))
    models.show_islands(graph, fallback_share(graph, seconds))
    if verification:
        out.print(models.verification_text(verification))
    card_view.show_card(card, graph)
    out.print("Cut with: soc-pipeline plan MODEL --cut NAME (a tensor, an operator, or a position), or --stages N")
    return 0


def _inspect_bundle(options: argparse.Namespace) -> int:
    from pipeline.executor.bundle_description import describe_bundle
    from pipeline.prediction.predict import predict
    from pipeline.prediction.uncertainty import rate_range

    if options.verify or options.shape or options.size or options.params:
        raise InputError(f"{options.model!r} is a bundle; --verify, --shape, --size and --params are for its model")
    bundle = describe_bundle(options.model)
    plan, card = bundle.plan, card_options.complete_card(options, bundle.plan, bundle.card)
    published = rate_range(plan)
    if options.json:
        facts = {
            "name": plan.model,
            "rate_range": published,
            "digest": plan.digest,
            "inputs": plan.inputs,
            "outputs": plan.outputs,
        }
        console.print_json(facts | {"stages": plan.stages} | card_view.describe_card(card, plan))
        return 0
    table = console.table(f"{plan.model}: bundle of {len(plan.stages)} stages", "stage", "device", "inputs", "outputs")
    for stage in plan.stages:
        ends = (", ".join(map(str, specs)) for specs in (stage.inputs, stage.outputs))
        table.add_row(stage.name, stage.device, *ends)
    console.console().print(table)
    if published:
        text = console.rate_text(predict(plan).frames_per_s, published)
        console.console().print(f"Predicted for {plan.board.name}: {text}.")
    card_view.show_card(card, plan)
    return 0


def _operator_table(graph: Graph, seconds: list[float], cuts: list[Cut]) -> Any:
    """Return a row for each operator.

    The last operator of a group has the group's time, and the tensors across a cut behind it.
    """
    parameters = console.amount(graph.parameter_bytes)
    costs = f"{graph.flops / 1e6:.1f} MFLOP, {parameters} of parameters"
    cuts_by_position = {cut.position: cut for cut in cuts}
    table = console.table(
        f"{graph.name}: {len(graph.operators)} operators, {costs}, {len(cuts)} legal cuts",
        ">position", "operator", "kind", "result", ">MFLOP", ">parameters", ">group ms (est.)", "crossing tensors",
        ">bytes per frame",
    )  # fmt: skip
    for position, operator in enumerate(graph.operators, start=1):
        results = [graph.tensors[name] for name in operator.outputs]
        cut = cuts_by_position.get(position)
        table.add_row(
            str(position),
            operator.name,
            operator.kind,
            ", ".join(f"{spec.dtype}{list(spec.shape)}" for spec in results),
            f"{operator.flops / 1e6:.3f}",
            console.amount(operator.parameter_bytes) if operator.parameter_bytes else "",
            f"{seconds[operator.group] * 1e3:.3f}" if position in graph.group_ends else "",
            "" if cut is None else ", ".join(spec.name for spec in cut.crossing),
            "" if cut is None else console.amount(cut.nbytes),
        )
    return table


def _facts(graph: Graph, cuts: list[Cut], seconds: list[float]) -> dict[str, Any]:
    return {
        "name": graph.name,
        "digest": graph.digest,
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "operators": [
            {
                "position": position,
                "name": operator.name,
                "kind": operator.kind,
                "inputs": operator.inputs,
                "outputs": [graph.tensors[name] for name in operator.outputs],
                "flops": operator.flops,
                "parameter_bytes": operator.parameter_bytes,
                "group": operator.group,
            }
            for position, operator in enumerate(graph.operators, start=1)
        ],
        "islands": graph.islands,
        "group_seconds_estimated": seconds,
        "cuts": [
            {"position": cut.position, "after": cut.after, "bytes": cut.nbytes, "crossing": cut.crossing}
            for cut in cuts
        ],
    }
