"""``soc-pipeline profile``: measure a model's operators on a board's devices."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from pipeline.commands.shared import console, models

if TYPE_CHECKING:
    from pipeline.core.board.board import Device
    from pipeline.measure.profile import Profile
    from pipeline.split.graph import Graph

HELP = (
    "Measure a model's operators on each device of a board that is present here or served elsewhere (there with "
    "--accept-uploads), and links by copying; estimate the others. What is measured is kept for 'plan --measure' and "
    "for other models with the same operators."
)
EXAMPLE = "soc-pipeline profile model.onnx --board host"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    parser.add_argument("--board", default="host", help="a board, or a TOML file (default: host, this machine)")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument("--all", action="store_true", help="list all groups of operators, not only the slowest")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


SLOWEST = 15
"""Groups listed by default."""


def run(options: argparse.Namespace) -> int:
    """Read, measure, print."""
    from pipeline.measure.profile import profile

    graph = models.read(options)
    with console.progress("measuring") as update:
        result = profile(graph, options.board, fresh=options.fresh, progress=update)
    if options.json:
        console.print_json(_facts(graph, result))
    else:
        _show(graph, result, math.inf if options.all else SLOWEST)
    return 0


def _show(graph: Graph, profile: Profile, limit: float) -> None:
    from pipeline.split.planning.problem.group_work import group_family, groups

    out = console.console()
    numbered_groups = list(enumerate(groups(graph)))
    # The slowest on any of the devices are chosen, and shown in their order in the model.
    numbered_groups.sort(key=lambda row: -max(filter(math.isfinite, _row(profile, row[0])), default=0.0))
    rows = sorted(numbered_groups[: int(min(limit, len(numbered_groups)))], key=lambda row: row[0])
    columns = [f">{name} us" for name in profile.seconds]
    table = console.table(f"{graph.name} on {profile.board.name}", ">group", "operators", "family", *columns)
    for number, group in rows:
        times = [f"{row * 1e6:.1f}" if math.isfinite(row) else "cannot" for row in _row(profile, number)]
        table.add_row(
            str(number), " .. ".join(dict.fromkeys((group[0].name, group[-1].name))), group_family(group), *times
        )
    table.add_section()
    table.add_row("", f"all {len(numbered_groups)} groups", "", *(_total(times) for times in profile.seconds.values()))
    out.print(table)
    for device in profile.board.devices:
        copying = "measured" if "bytes_per_s" in device.measured else "estimated"
        rate = f"{device.bytes_per_s / 1e9:.1f} GB/s of one core, {copying}"
        out.print(f"{device.name}: operators {_origin(profile, device)}; {rate}", soft_wrap=True)
    for link in profile.board.links:
        origin = "measured" if link.measured else "estimated"
        out.print(
            f"link {' - '.join(link.ends)}: {link.bytes_per_s / 1e9:.2f} GB/s, {link.latency_s * 1e6:.1f} us, {origin}",
            soft_wrap=True,
        )


def _origin(profile: Profile, device: Device) -> str:
    """Describe the origin of a device's times, with contention between cores."""
    if reason := profile.estimated.get(device.name):
        return f"estimated: {reason}"
    isolated_s, contended_s = (
        sum(filter(math.isfinite, times[device.name])) for times in (profile.seconds, profile.contended)
    )
    has_several_cores = len(device.cores) > 1 and isolated_s
    return (
        f"measured, {contended_s / isolated_s:.2f} times as long while its other cores are busy"
        if has_several_cores
        else "measured"
    )


def _row(profile: Profile, number: int) -> list[float]:
    return [times[number] for times in profile.seconds.values()]


def _total(times: tuple[float, ...]) -> str:
    # A device that cannot run some groups has no total to compare with the others.
    able = list(filter(math.isfinite, times))
    return f"{sum(able) * 1e6:.1f}" if len(able) == len(times) else f"{len(able)} of them: {sum(able) * 1e6:.1f}"


def _facts(graph: Graph, profile: Profile) -> dict[str, object]:
    from pipeline.split.planning.problem.group_work import group_family, groups

    return {
        "model": graph.name,
        "board": profile.board,
        "estimated": profile.estimated,
        "groups": [
            {
                "operators": [operator.name for operator in group],
                "family": group_family(group),
                "seconds": {name: _finite(times[number]) for name, times in profile.seconds.items()},
                "contended_seconds": {name: _finite(times[number]) for name, times in profile.contended.items()},
                "measured": {name: name not in profile.estimated for name in profile.seconds},
            }
            for number, group in enumerate(groups(graph))
        ],
    }


def _finite(seconds: float) -> float | None:
    """Return a time, or None for unsupported operators."""
    return seconds if math.isfinite(seconds) else None
