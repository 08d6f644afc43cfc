"""``soc-pipeline boards``: shipped boards, or one in full."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import msgspec

import boards
from boards.published import PublishedFigure, figures
from pipeline.commands.shared import console
from pipeline.core.board.board import Board, Cluster, Device, Link
from pipeline.errors import BoardError

HELP = "List the boards that come along, or show one in full: its devices, cores, memories and links."
EXAMPLE = "soc-pipeline boards rk3588"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("board", metavar="NAME", nargs="?", help="a board, or a TOML file; all boards by default")
    format_group = parser.add_mutually_exclusive_group()
    format_group.add_argument("--json", action="store_true", help="print JSON instead of a table")
    format_group.add_argument(
        "--toml",
        action="store_true",
        help=f"print the board's file, to start one's own; {boards.EXAMPLE!r} explains it",
    )


def run(options: argparse.Namespace) -> int:
    """Print one board, or all."""
    if options.toml:
        if options.board == boards.HOST:
            raise BoardError("'host' has no file, since it is found out by looking; --json prints what was found")
        # As it is, with its comments; without a line behind its last one.
        print(boards.board_path(options.board or boards.EXAMPLE).read_text(encoding="utf-8"), end="")
    elif options.board:
        board = boards.get(options.board)
        # A file of one's own may have the name of a board that comes along.
        published = figures(board.name) if options.board in boards.names() else ()
        if options.json:
            console.print_json({**msgspec.to_builtins(board), "published": published})
        else:
            _show(board)
            _show_figures(published)
    else:
        all_boards = [boards.get(name) for name in boards.names()]
        console.print_json(all_boards) if options.json else _list(all_boards)
    return 0


def _list(board_list: list[Board]) -> None:
    out = console.console()
    table = console.table("Boards", "board", "devices", ">memory", "what it is")
    for board in board_list:
        devices = ", ".join(f"{device.name} ({_cores(device) or device.kind})" for device in board.devices)
        table.add_row(board.name, devices, _bytes(board.devices[0].memory_bytes), board.about)
    out.print(table)
    out.print("'soc-pipeline boards NAME' shows one in full; a board of your own is a TOML file: see boards --toml")


def _show(board: Board) -> None:
    out = console.console()
    out.print(f"{board.name}: {board.about}" if board.about else board.name, soft_wrap=True)
    for device in board.devices:
        table = console.table(f"Device {device.name}", "what", ">value", "how known")
        for row in _rows(device):
            table.add_row(*row)
        out.print(table)
    if board.links:
        table = console.table("Links", "between", ">bandwidth", ">latency", "how known")
        for link in board.links:
            table.add_row(" - ".join(link.ends), _rate(link), f"{link.latency_s * 1e6:.1f} us", _origin(link.measured))
        out.print(table)


def _show_figures(published: Sequence[PublishedFigure]) -> None:
    """Print the published figures of a board, and their sources."""
    if not published:
        return
    sources = list(dict.fromkeys(figure.source for figure in published))
    columns = ("device", "model", "precision", "runtime", ">threads", ">frames/s", ">ms", ">source")
    table = console.table("Published figures", *columns)
    for figure in published:
        table.add_row(
            figure.device,
            f"{figure.model} {figure.size or ''}".rstrip(),
            " ".join((figure.precision, *figure.options)),
            figure.runtime,
            str(figure.threads or len(figure.cores) or ""),
            f"{1 / figure.seconds:.4g}",
            f"{figure.seconds * 1e3:.4g}",
            str(sources.index(figure.source) + 1),
        )
    out = console.console()
    out.print(table)
    for number, source in enumerate(sources, 1):
        out.print(f"{number}: {source}", soft_wrap=True)


def _rows(device: Device) -> Iterator[tuple[str, str, str]]:
    """Yield a device's facts: name, amount and origin."""
    facts = {
        "kind": device.kind,
        "target": _target(device),
        "address": device.address,
        "cores": "; ".join(map(_describe_cluster, device.clusters)) or _cores(device),
        "stages at once": str(device.places),
        "families": ", ".join(device.families) or "all",
        "dtypes": ", ".join(device.dtypes) or "all",
        "memory": f"{device.memory}, {_bytes(device.memory_bytes)}",
    }
    yield from ((title, value, "") for title, value in facts.items() if value)
    # Rates of a CPU are those of one core, as plans count with cores one by one.
    suffix = " of one core" if device.cores else ""
    watts = f"{device.watts_idle:g} to {device.watts_busy:g} W" if device.watts_busy else ""
    numbers = [
        ("flops", f"operations{suffix}", _giga(device.flops, "G/s")),
        ("int8_flops", f"int8 operations{suffix}", _giga(device.int8_flops, "G/s")),
        ("float16_flops", f"float16 operations{suffix}", _giga(device.float16_flops, "G/s")),
        ("bfloat16_flops", f"bfloat16 operations{suffix}", _giga(device.bfloat16_flops, "G/s")),
        ("bytes_per_s", f"bandwidth{suffix}", _giga(device.bytes_per_s, "GB/s")),
        ("memory_bytes_per_s", "bandwidth of the memory", _giga(device.memory_bytes_per_s, "GB/s")),
        ("launch_s", "start of an operator", f"{device.launch_s * 1e6:.1f} us"),
        ("watts_busy", "power", watts),
    ]
    yield from ((title, value, _origin(field in device.measured)) for field, title, value in numbers if value)
    if accuracy := device.accuracy:
        share = f"{accuracy.low:.2f} to {accuracy.high:.2f} times the predicted rate"
        yield "published rates", share, f"90 % of {accuracy.figures} figures"


def _target(device: Device) -> str:
    if device.target is None:
        return "this machine's processor" if device.capabilities.is_processor else ""
    # A boolean alone says nothing without its key.
    values = (
        (key if value else "") if isinstance(value, bool) else _text(value) for key, value in device.target.items()
    )
    return " ".join(filter(None, values))


def _describe_cluster(cluster: Cluster) -> str:
    keys = "".join(f", {_text(value)}" for value in (cluster.target or {}).values())
    return f"{cluster.name} {cluster.cores}, speed {cluster.speed:g}{keys}"


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _giga(rate: float, unit: str) -> str:
    return f"{rate / 1e9:.1f} {unit}" if rate else ""


def _cores(device: Device) -> str:
    if not device.clusters:
        return f"{len(device.cores)} cores" if device.cores else ""
    return " + ".join(f"{len(cluster.cores)} {cluster.name}" for cluster in device.clusters)


def _bytes(nbytes: int) -> str:
    return console.amount(nbytes) if nbytes else "unknown"


def _rate(link: Link) -> str:
    return "shared" if link.shared else f"{link.bytes_per_s / 1e9:.2f} GB/s"


def _origin(is_measured: bool) -> str:
    return "measured" if is_measured else "estimated"
