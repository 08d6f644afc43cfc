"""``soc-pipeline profile``: measure a model's operators on the devices of a board, here and on other machines."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from pipeline.commands import common, models

if TYPE_CHECKING:
    from pipeline.board import Device
    from pipeline.profiling import Profile
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
"""So many groups are listed by default."""


def run(options: argparse.Namespace) -> int:
    """Read, measure, print."""
    from pipeline.profiling import profile

    graph = models.read(options)
    with common.progress("measuring") as update:
        found = profile(graph, options.board, fresh=options.fresh, progress=update)
    if options.json:
        common.print_json(_facts(graph, found))
    else:
        _show(graph, found, math.inf if options.all else SLOWEST)
    return 0


def _show(graph: Graph, found: Profile, most: float) -> None:
    from pipeline.split.costs import groups
    from pipeline.split.families import family

    out = common.console()
    listed = list(enumerate(groups(graph)))
    listed.sort(key=lambda each: -max(filter(math.isfinite, _row(found, each[0])), default=0.0))
    shown = sorted(listed[: int(min(most, len(listed)))], key=lambda each: each[0])
    columns = [f">{name} us" for name in found.seconds]
    table = common.table(f"{graph.name} on {found.board.name}", ">group", "operators", "family", *columns)
    for number, group in shown:
        times = [f"{each * 1e6:.1f}" if math.isfinite(each) else "cannot" for each in _row(found, number)]
        table.add_row(str(number), " .. ".join(dict.fromkeys((group[0].name, group[-1].name))), family(group), *times)
    table.add_section()
    table.add_row("", f"all {len(listed)} groups", "", *(_total(times) for times in found.seconds.values()))
    out.print(table)
    for device in found.board.devices:
        copying = "measured" if "bytes_per_s" in device.measured else "estimated"
        rate = f"{device.bytes_per_s / 1e9:.1f} GB/s of one core, {copying}"
        out.print(f"{device.name}: operators {_known(found, device)}; {rate}", soft_wrap=True)
    for link in found.board.links:
        how = "measured" if link.measured else "estimated"
        out.print(
            f"link {' - '.join(link.ends)}: {link.bytes_per_s / 1e9:.2f} GB/s, {link.latency_s * 1e6:.1f} us, {how}",
            soft_wrap=True,
        )


def _known(found: Profile, device: Device) -> str:
    """Return how the times of a device are known; of several cores, by how much they slow each other, too."""
    if reason := found.estimated.get(device.name):
        return f"estimated: {reason}"
    alone, crowded = (sum(filter(math.isfinite, times[device.name])) for times in (found.seconds, found.crowded))
    several = len(device.cores) > 1 and alone
    return f"measured, {crowded / alone:.2f} times as long while its other cores are busy" if several else "measured"


def _row(found: Profile, number: int) -> list[float]:
    return [times[number] for times in found.seconds.values()]


def _total(times: tuple[float, ...]) -> str:
    able = list(filter(math.isfinite, times))
    return f"{sum(able) * 1e6:.1f}" if len(able) == len(times) else f"{len(able)} of them: {sum(able) * 1e6:.1f}"


def _facts(graph: Graph, found: Profile) -> dict[str, object]:
    from pipeline.split.costs import groups
    from pipeline.split.families import family

    return {
        "model": graph.name,
        "board": found.board,
        "estimated": found.estimated,
        "groups": [
            {
                "operators": [operator.name for operator in group],
                "family": family(group),
                "seconds": {name: _finite(times[number]) for name, times in found.seconds.items()},
                "crowded_seconds": {name: _finite(times[number]) for name, times in found.crowded.items()},
                "measured": {name: name not in found.estimated for name in found.seconds},
            }
            for number, group in enumerate(groups(graph))
        ],
    }


def _finite(seconds: float) -> float | None:
    """Return a time; what a device cannot run has none."""
    return seconds if math.isfinite(seconds) else None
