"""``soc-pipeline profile``: measure a model's operators on a board's devices."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands.shared import console, models
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.core.board.board import Board, Device
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
    parser.add_argument(
        "--import", dest="vendor_profile", metavar="FILE",
        help="keep the times of an absent device, by its vendor's tool: trtexec --exportProfile, RKNN's eval_perf, "
        "hailortcli run --csv or benchmark; 'plan --measure' takes them",
    )  # fmt: skip
    parser.add_argument(
        "--export", metavar="FILE.json",
        help="write the measured board with the model's times: 'plan --board FILE.json' plans with them anywhere; "
        "further models are added",
    )  # fmt: skip
    parser.add_argument("--device", help="device that was measured, with --import (default: the only accelerator)")
    parser.add_argument("--fresh", action="store_true", help="measure again what was measured before")
    parser.add_argument("--all", action="store_true", help="list all groups of operators, not only the slowest")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


SLOWEST = 15
"""Groups listed by default."""


def run(options: argparse.Namespace) -> int:
    """Read, measure, print."""
    from pipeline.measure.board_export import check_export, export_profile
    from pipeline.measure.profile import profile

    # Measuring takes minutes.
    if options.export:
        check_export(Path(options.export))
    if options.device and not options.vendor_profile:
        raise InputError("--device is for --import, which takes a device's times from a file")
    graph = models.read(options)
    if options.vendor_profile:
        return _import(graph, options)
    with console.progress("measuring") as update:
        result = profile(graph, options.board, fresh=options.fresh, progress=update)
    if options.export:
        export_profile(Path(options.export), graph, result)
    if options.json:
        console.print_json(_facts(graph, result))
    else:
        _show(graph, result, math.inf if options.all else SLOWEST)
    return 0


def _import(graph: Graph, options: argparse.Namespace) -> int:
    """Keep the times of a vendor's profile, and say how they were shared out."""
    import boards
    from pipeline.measure.cost_cache import CostCache, ImportRecord, key_of_import
    from pipeline.measure.vendor_profiles import read_profile, share_out
    from pipeline.split.planning.problem.costs import estimate

    board = boards.get(options.board)
    device = board.device(options.device) if options.device else _only_accelerator(board)
    tool, profile = read_profile(Path(options.vendor_profile))
    seconds, share = share_out(profile, graph, estimate(graph, device))
    if not any(map(math.isfinite, seconds)):
        raise InputError(
            f"device {device.name!r} of {board.name!r} runs nothing of {graph.name!r}; give another --device"
        )
    key = key_of_import(graph.digest, board, device)
    CostCache.of_user().put(ImportRecord(key, tool, tuple(map(_finite, seconds))))
    facts = {"tool": tool, "device": device.name, "seconds": profile.seconds, "share_by_name": share}
    if options.json:
        console.print_json(facts | {"group_seconds": list(map(_finite, seconds))})
        return 0
    way = f"{share:.0%} of it by the names of layers" if share else "divided as the estimates are"
    console.console().print(
        f"{device.name}: {profile.seconds * 1e3:.4g} ms a frame by {tool}, {way}. "
        f"Kept for 'soc-pipeline plan --measure --board {options.board}'.",
        soft_wrap=True,
    )
    return 0


def _only_accelerator(board: Board) -> Device:
    """Return the device beside the CPU, the first of equal ones."""
    devices = [device for device in board.devices if not device.capabilities.is_processor]
    if len({device.likeness for device in devices}) != 1:
        names = ", ".join(device.name for device in board.devices)
        raise InputError(f"say by --device which device of {board.name!r} was measured: {names}")
    return devices[0]


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
    if tool := profile.tools.get(device.name):
        return f"measured by {tool}"
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
        "tools": profile.tools,
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
