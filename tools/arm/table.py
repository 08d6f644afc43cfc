"""Table of the estimates of arm.py for the cores of boards, and the boards' figures that follow from it.

The table is part of the package: builds read from it whether two kinds of cores need code of their own.  Boards' files
have comments such as "A Cortex-A76 of 2.4 GHz, by tools/arm/table.py:", and what is behind them is written anew: the
products per cycle, `flops` and `int8_flops` of one core (two operations for each product, at that clock), and the
`speed` of smaller cores.  Loops alone are estimated, with all data in the first-level cache; see docs/arm-kernels.md.

core      what kernels are compiled for
float32   products per cycle, the mean over networks; the same of int8
foreign   another core of boards with both kinds, and the speed of its kernels here as a share of this core's own
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

from report import Row, parser, report

import boards
from arm import describe_network, target_of
from pipeline.executor import core_estimates
from pipeline.executor.core_estimates import CoreEstimates, Rates
from tools.arm import analyser, kernels, networks

COMMAND = "python -m tools.arm.table"

CORES = ("cortex-a76", "cortex-a78ae", "cortex-a72", "cortex-a57", "cortex-a55", "cortex-a53")
PAIRS = (("cortex-a76", "cortex-a55"), ("cortex-a72", "cortex-a53"))
"""Big and LITTLE cores of one processor: the first one's code on the second, and the other way round."""

NETWORKS = ("squeezenet", f"squeezenet{networks.INT8}")
"""Small ones: larger networks are within a few percent of them, and take five times as long to analyse."""

FLOAT, INT8 = "float32", "int8"
_NAME = r"A (?P<core>Cortex-[AX]\d+\w*) of (?P<clock>[\d.]+) GHz"
_FIGURES = re.compile(rf"# {_NAME}, by tools/arm/table\.py:.*\nflops = \S+\nint8_flops = \S+\n")
_SPEED = re.compile(rf"# {_NAME}, by tools/arm/table\.py:.*\n")
_SPEED_KEY = re.compile(r"^speed = \S+$", re.MULTILINE)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--network", nargs="+", choices=networks.NAMES, default=NETWORKS, metavar="NAME",
                         help=", ".join(networks.NAMES))  # fmt: skip
    options.add_argument("--boards-only", action="store_true", help="write boards' figures from the table as it is")
    arguments = options.parse_args()
    if not arguments.boards_only:
        core_estimates.TABLE.write_text(encode(estimate(arguments.network)))
        core_estimates.table.cache_clear()
    for path in board_files():
        path.write_text(with_figures(path.read_text(), core_estimates.table().products_per_cycle))
    report("Estimates for cores", rows(core_estimates.table()), (__doc__ or "").rpartition("\n\n")[2], arguments.json)


def board_files() -> list[Path]:
    """Return the files of the boards that come along."""
    return [boards.board_path(name) for name in boards.names() if name != boards.HOST]


def estimate(names: Sequence[str]) -> CoreEstimates:
    """Return the estimates over some networks."""
    rates: dict[tuple[str, str], dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for network in names:
            kind = INT8 if network.endswith(networks.INT8) else FLOAT
            for pair, rate in network_rates(network, Path(folder)):
                rates.setdefault(pair, {}).setdefault(kind, []).append(rate)
    means = {pair: {kind: mean(values) for kind, values in kinds.items()} for pair, kinds in rates.items()}
    own = {core: _rounded(means[core, core]) for core in CORES}
    foreign: dict[str, dict[str, Rates]] = {}
    for (code, runner), foreign_rates in means.items():
        if code != runner:
            shares = {kind: rate / means[runner, runner][kind] for kind, rate in foreign_rates.items()}
            foreign.setdefault(runner, {})[code] = _rounded(shares)
    return CoreEstimates(COMMAND, analyser.version(), own, foreign)


def network_rates(network: str, folder: Path) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield cores that a network is compiled for and run on, with the products per cycle."""
    stage = networks.module(network, folder)
    for code, runner in [pair for core in CORES for pair in _pairs_of(core)]:
        compiled = networks.compile_network(stage, target_of(code), folder / "kernels.o")
        rate = describe_network(kernels.estimate(compiled, runner))["macs_per_cycle"]
        print(f"{network}, code for {code} on {runner}: {rate:.2f} products per cycle", flush=True)
        yield (code, runner), rate


def _pairs_of(core: str) -> list[tuple[str, str]]:
    """Return a core with itself, and with those of its processor that are unlike."""
    return [(core, core), *((core, other) for pair in PAIRS if core in pair for other in pair if other != core)]


def _rounded(rates: Mapping[str, float]) -> Rates:
    return {kind: round(rate, 3) for kind, rate in rates.items()}


def encode(estimates: CoreEstimates) -> str:
    """Return the text of the table's file."""
    return json.dumps({name: getattr(estimates, name) for name in estimates.__struct_fields__}, indent=1) + "\n"


def rows(estimates: CoreEstimates) -> list[Row]:
    """Return a row for each core."""
    return [
        {
            "core": core,
            **rates,
            "foreign": _describe(estimates.foreign_code.get(core, {}).items()),
        }
        for core, rates in estimates.products_per_cycle.items()
    ]


def _describe(shares: Iterable[tuple[str, Rates]]) -> str | None:
    return "; ".join(f"{code} {', '.join(f'{rate:.2f}' for rate in rates.values())}" for code, rates in shares) or None


def with_figures(text: str, rates: Mapping[str, Rates]) -> str:
    """Return a board's file with the figures that follow from products per cycle."""
    main: list[tuple[str, float]] = []

    def figures(match: re.Match[str]) -> str:
        core, clock = match["core"], float(match["clock"])
        rate = rates[core.lower()]
        main[:] = [(core, clock)]
        return (
            f"# A {core} of {clock:g} GHz, by tools/arm/table.py: {rate[FLOAT]:.1f} products per cycle in float32, "
            f"{rate[INT8]:.1f} in int8.\n"
            f"flops = {_number(2e9 * clock * rate[FLOAT])}\nint8_flops = {_number(2e9 * clock * rate[INT8])}\n"
        )

    text = _FIGURES.sub(figures, text)
    matches = [match for match in _SPEED.finditer(text) if main and (match["core"], float(match["clock"])) != main[0]]
    # From the last one on, since what is written anew may be longer.
    for match in reversed(matches):
        text = text[: match.start()] + _slower(match, text[match.end() :], main[0], rates)
    return text


def _slower(match: re.Match[str], rest: str, main: tuple[str, float], rates: Mapping[str, Rates]) -> str:
    """Return the comment on smaller cores, and what follows it with their speed."""
    (core, clock), (big, big_clock) = (match["core"], float(match["clock"])), main
    speed = clock * rates[core.lower()][FLOAT] / (big_clock * rates[big.lower()][FLOAT])
    comment = f"# A {core} of {clock:g} GHz, by tools/arm/table.py: {speed:.2g} times a {big} in float32.\n"
    return comment + _SPEED_KEY.sub(f"speed = {speed:.2g}", rest, count=1)


def _number(rate: float) -> str:
    # Three digits are more than an estimate has, and tell which one it was.
    return f"{rate:.2e}".replace("e+0", "e").replace("e+", "e")


if __name__ == "__main__":
    main()
