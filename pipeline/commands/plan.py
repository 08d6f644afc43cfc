"""``soc-pipeline plan``: cut a model into stages."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pipeline.commands.shared import console, drawing, models, plan_options
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.core.plan.plan import Plan
    from pipeline.split.planning.advice.explanation import Explanation

HELP = "Cut a model into stages, predict their times, and say what limits them and whether pipelining helps."
EXAMPLE = "soc-pipeline plan model.onnx --stages 2 --measure -o plan.json"

COLUMNS = ("stage", "device", "cores", "operators", ">compute ms", ">transfer ms", ">interval ms", ">queue", ">memory")

_TIGHT = 0.005
"""Share of a bound up to which it is called tight."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    plan_options.arguments(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the plan as JSON")
    parser.add_argument(
        "--drawing", metavar="FILE", help="draw which stage is predicted to work on which frame when, .png or .svg"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the plan as JSON, with its explanation, instead of a table"
    )


def run(options: argparse.Namespace) -> int:
    """Read, plan, explain, print and save."""
    from pipeline.split.planning.advice.explanation import explain

    # Before minutes of measuring.
    if options.output:
        _check_output(Path(options.output))
    if options.drawing:
        drawing.check(Path(options.drawing))
    graph = models.read(options)
    with console.progress("planning") as step:
        planner, plan = plan_options.make_planner_and_plan(graph, options, step)
        # The alternatives are planned for that, too.
        step("comparing with other ways")
        explanation = explain(planner, plan, options.objective, options.fps)
    if options.output:
        plan.save(options.output)
    if options.drawing:
        drawing.draw(plan, options.drawing)
    if options.json:
        console.print_json(as_json(plan, explanation))
        return 0
    show(plan, explanation)
    models.show_islands(graph, explanation.fallback_share)
    for title, path in (("Plan", options.output), ("Drawing", options.drawing)):
        if path:
            console.console().print(f"{title}: {path}", soft_wrap=True)
    return 0


def _check_output(path: Path) -> None:
    if path.is_dir() or not path.absolute().parent.is_dir():
        reason = "it is a folder" if path.is_dir() else "there is no such folder"
        raise PlanError(f"cannot write plan {str(path)!r}: {reason}")


def as_json(plan: Plan, explanation: Explanation) -> dict[str, Any]:
    """Return the plan's fields, with its findings under ``explanation``."""
    from pipeline.prediction.uncertainty import rate_range

    facts = asdict(explanation)
    facts |= {"frames_per_s": explanation.frames_per_s, "rate_range": rate_range(plan), "gap": explanation.gap}
    return {**msgspec.to_builtins(plan), "explanation": facts}


def show(plan: Plan, explanation: Explanation) -> None:
    """Print table, verdict, bound, alternatives and advice."""
    from pipeline.prediction.uncertainty import rate_range

    out = console.console()
    table = console.table(f"{plan.model} on {plan.board.name}", *COLUMNS)
    for row in rows(explanation):
        table.add_row(*row)
    out.print(table)
    if any(stage.steps for stage in explanation.stages):
        out.print(_step_table(explanation))
    out.print(
        f"Predicted ({_basis(explanation)}): {console.rate_text(explanation.frames_per_s, rate_range(plan))}, "
        f"{plan.unsplit_seconds * explanation.frames_per_s:.2f} times the unsplit model on "
        f"one core; latency {explanation.latency_s * 1e3:.3g} ms{_energy(explanation)}."
    )
    lines = [explanation.reason, _limits(explanation), _outlook(explanation), _trade_offs(explanation)]
    # One stage alone has nobody to wait for.
    lines += [_queues(explanation)] if len(explanation.stages) > 1 else []
    for line in (*lines, *(f"  {line}" for line in (*_causes(explanation), *explanation.unfused, *explanation.help))):
        out.print(line)
    considered = console.table("Considered", "way", ">stages", ">replicas", ">frames/s", ">latency ms")
    for alternative in explanation.alternatives:
        numbers = (f"{alternative.frames_per_s:.4g}", f"{alternative.latency_s * 1e3:.4g}")
        considered.add_row(alternative.name, str(alternative.stages), str(alternative.replicas), *numbers)
    out.print(considered)


def _basis(explanation: Explanation) -> str:
    """Return the origin of the times, with stages where it differs."""
    stages: dict[str, list[str]] = {}
    for stage in explanation.stages:
        stages.setdefault(stage.basis, []).append(stage.name)
    return "; ".join(f"{basis}: {', '.join(names)}" if len(stages) > 1 else basis for basis, names in stages.items())


def rows(explanation: Explanation) -> list[tuple[str, ...]]:
    """Return one row of text for each stage."""
    return [
        (
            stage.name + (f" x {stage.replicas}" if stage.replicas > 1 else ""),
            " + ".join(stage.devices),
            ",".join(map(str, stage.cores)) or "-",
            stage.title,
            f"{stage.compute_s * 1e3:.3f}",
            f"{(stage.enter_s + stage.leave_s) * 1e3:.3f}",
            f"{stage.interval_s * 1e3:.3f}",
            str(stage.queue_depth),
            console.amount(stage.memory_bytes) + ("" if stage.memory_share is None else f" ({stage.memory_share:.1%})"),
        )
        for stage in explanation.stages
    ]


def _step_table(explanation: Explanation) -> Table:
    """Return the steps of stages with borrowed devices."""
    table = console.table("Steps", "stage", ">step", "device", "operators", ">compute ms", ">transfer ms", ">weights")
    for stage in explanation.stages:
        for number, step in enumerate(stage.steps):
            amounts = (f"{step.compute_s * 1e3:.3f}", f"{step.transfer_s * 1e3:.3f}", console.amount(step.weight_bytes))
            table.add_row(stage.name, str(number), step.device, " .. ".join(step.operators), *amounts)
    return table


def _energy(explanation: Explanation) -> str:
    return "" if explanation.joules is None else f"; {explanation.joules * 1e3:.3g} mJ per frame above rest"


def _trade_offs(explanation: Explanation) -> str:
    alternatives = (
        f"{option.name} {option.frames_per_s:.4g} frames/s with {option.latency_s * 1e3:.3g} ms"
        for option in explanation.trade_offs
    )
    return f"Rate and latency: {'; '.join(alternatives)}."


def _causes(explanation: Explanation) -> list[str]:
    """Return why stages lie where they do, those of one cause in one line."""
    stages: dict[tuple[str, str], list[str]] = {}
    for stage in explanation.stages:
        if stage.cause:
            device = " + ".join(stage.devices) if stage.replica_devices else stage.device
            stages.setdefault((device, stage.cause), []).append(f"{stage.name} ({stage.title})")
    return [f"{', '.join(names)} on {device}: {cause}." for (device, cause), names in stages.items()]


def _queues(explanation: Explanation) -> str:
    worst = max(explanation.stages, key=lambda stage: stage.queue_cost)
    return (
        f"Queues: with stage times that vary by {explanation.cv:.0%}, the one in front of {worst.name} costs the "
        f"most, {worst.queue_cost:.1%} of the frames per second."
    )


def _limits(explanation: Explanation) -> str:
    slowest = max(explanation.stages, key=lambda stage: stage.interval_s)
    transfer_share = (slowest.enter_s + slowest.leave_s) / slowest.seconds if slowest.seconds else 0.0
    slow_part = (
        f"{slowest.slowest_share:.0%} of its computing is {slowest.slowest_operator!r}, transfers are "
        f"{transfer_share:.0%} of its time; of the computing, {explanation.traffic_share:.0%} is traffic to memory, by "
        "estimate"
    )
    if explanation.bottleneck == slowest.name:
        bottleneck = f"The bottleneck is {slowest.name} ({slowest.title}): {slow_part}."
    else:
        bottleneck = (
            f"The bottleneck is {explanation.bottleneck}, {explanation.interval_s * 1e3:.4g} ms per frame for all "
            f"stages; the slowest of these is {slowest.name}: {slow_part}."
        )
    return (
        f"{bottleneck} In this order of operators, no plan takes less than {explanation.bound_s * 1e3:.4g} ms per "
        f"frame (gap {explanation.gap:.1%}{_open_gap(explanation)}); could work be cut anywhere for nothing, "
        f"{explanation.relaxed_s * 1e3:.4g} ms.{_shared(explanation)}"
    )


def _outlook(explanation: Explanation) -> str:
    """Describe what is idle, and what would change the rate."""
    idle = f"Idle: {'; '.join(explanation.idle)}." if explanation.idle else "Nothing is idle."
    gains = ", ".join(f"{change.name} {change.gain:.2f} times" for change in explanation.changes)
    return f"{idle} The fastest rate would be, by estimate: {gains}." if gains else idle


def _open_gap(explanation: Explanation) -> str:
    """Describe the bound's gap to the best plan, if notable."""
    if explanation.open_gap < _TIGHT:
        return ""
    return f"; the bound is not tight: the fastest plan that was found takes {explanation.open_gap:.1%} more"


def _shared(explanation: Explanation) -> str:
    """Describe shared resources' busy shares, busiest first."""
    loads = sorted(explanation.loads.items(), key=lambda load: -load[1])
    if not loads or not explanation.interval_s:
        return ""
    return " In use: " + ", ".join(f"{name} {load / explanation.interval_s:.0%}" for name, load in loads) + "."
