"""Speed of our kernels' loops on Arm cores beside those of other libraries: estimates, since no board is here.

LLVM's machine-code analyser (llvm-mca) reads innermost loops and simulates the core that they run on, all data in the
first-level cache.  Ours come from networks compiled for that core, each loop weighed by its share of a frame's time:
MobileNetV2, EfficientNet-Lite0 and YOLOv8n, unless others are named.  What is done with sums is counted apart; code
around that, such as copies with a border, is in no figure.  Those of ONNX Runtime and LiteRT come from their wheels for
aarch64, where nothing tells how often one runs: main loops are those with at least 32 multiplying instructions, as
dense in products as four fifths of the densest one of their kind.  Libraries have loops for several cores; the best
one counts.

kind              of the products: float32, float16, dot (sdot and its like), mlal (smlal, mla), mmla; int8 for ours;
                  winograd for float32 with Winograd's transforms where faster, as in float16; their cycles count,
                  but for copies at borders and tiles of 2 x 2
macs_per_cycle    products per cycle, over all loops of a network; the median of a library's main loops
with_results      the same with the cycles of what is done with sums, such as requantising
depthwise         products per cycle of depthwise convolutions alone, with what is done with sums
depthwise_share   share of them in the time
depthwise_spills  loops of them that keep vectors on the stack, of so many
best, worst       the same of one loop; of ours those that take at least 2 % of the time
fmla_per_cycle    in vectors of four float32, or eight float16; one is the limit, two on Neoverse N1 and Cortex-A76
ratio             of our products per cycle to the best loop of ONNX Runtime
loads_per_product loads for each multiplying instruction
spilling          share of the time in loops that keep vectors on the stack, in themselves or where sums are taken
epilogues         cycles of what is done with sums, outside of the innermost loops, for each cycle inside of them
bytes_per_element what kernels bound by memory read and write for each element of their results, weights included
fewest_bytes      the same, if all images had one byte for each element in int8 and four in float32
coverage          share of the products that are in the loops found
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from report import Row, median, parser, report

from pipeline.core.numerics import EXACT, Numerics

# Both folders of scripts lie in the repository's root.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.arm import analyser, kernels, memory, networks, wheels
from tools.arm.analyser import Unavailable
from tools.arm.kernels import LoopUse, NetworkEstimate
from tools.arm.memory import MemoryUse
from tools.arm.wheels import MainLoops

CORES = {
    "neoverse-n1": ("+dotprod", "+fullfp16"),
    "cortex-a76": ("+dotprod", "+fullfp16"),
    "cortex-a78ae": ("+dotprod", "+fullfp16"),
    "cortex-a72": (),
    "cortex-a57": (),
    "cortex-a55": ("+dotprod", "+fullfp16"),
    "cortex-a53": (),
    "neoverse-v1": ("+dotprod", "+fullfp16", "+i8mm"),
}
"""Core -> what it has beyond Armv8-A and decides how kernels multiply."""

USUAL = ("neoverse-n1", "cortex-a72", "cortex-a55", "cortex-a53")
QUICK = ("neoverse-n1", "cortex-a53")
_KINDS = {"+fullfp16": "float16", "+dotprod": "dot", "+i8mm": "mmla"}
_INT8 = ("dot", "mlal", "mmla")
_LANES = {"float32": 4, "float16": 8}
# Share of the time from which a loop's own speed is worth a figure.
_NOTABLE = 0.02


def main() -> None:
    options = arguments()
    cores = options.core or (QUICK if options.quick else USUAL)
    weighed = [name for name in networks.NAMES if name.startswith(networks.WEIGHED)]
    names = options.network or (weighed[:1] if options.quick else weighed)
    try:
        version = f"Estimates of LLVM {analyser.version()}, not measurements.\n"
    except Unavailable as error:
        report("Loops on Arm cores", [{"code": "all", "skipped": str(error)}], "", options.json)
        return
    baselines = [row for core in cores for name in wheels.WHEELS for row in library_rows(name, core)]
    rows: list[Row] = [*baselines]
    with tempfile.TemporaryDirectory() as folder:
        for network in names:
            stage = networks.module(network, Path(folder))
            for core in cores:
                for numerics in numerics_of(network, core):
                    work = functools.partial(network_rows, network, stage, core, Path(folder), baselines, numerics)
                    rows += rows_or_reason(f"ours, {network}", core, work)
    rows.sort(key=lambda row: cores.index(row["core"]))
    report("Loops on Arm cores", rows, version + (__doc__ or "").partition("\n\n")[2], options.json)


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--network", nargs="+", choices=networks.NAMES, metavar="NAME",
                         help=", ".join(networks.NAMES))  # fmt: skip
    options.add_argument("--core", nargs="+", choices=CORES, metavar="NAME", help=", ".join(CORES))
    return options.parse_args()


def rows_or_reason(code: str, core: str, work: Callable[[], list[Row]]) -> list[Row]:
    """Return rows, or one with the reason why there are none."""
    try:
        return work()
    except Unavailable as error:
        return [{"core": core, "code": code, "skipped": str(error)}]


def target_of(core: str) -> dict[str, object]:
    """Return TVM's description of a core."""
    description: dict[str, object] = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": core}
    return description | ({"mattr": list(CORES[core])} if CORES[core] else {})


def kinds_of(core: str) -> list[str]:
    """Return the kinds of products that a core has instructions for."""
    return ["float32", "mlal", *(_KINDS[feature] for feature in CORES[core])]


def numerics_of(network: str, core: str) -> list[Numerics]:
    """Return how a network's numbers are multiplied on a core: in float16 as well, if it has that."""
    if network.endswith(networks.INT8):
        return [EXACT]
    return [EXACT, Numerics(), *([Numerics("float16")] if _KINDS["+fullfp16"] in kinds_of(core) else [])]


def network_rows(  # noqa: PLR0913, PLR0917 - what is compiled, and for what
    network: str, stage: Any, core: str, folder: Path, baselines: Sequence[Row], numerics: Numerics
) -> list[Row]:
    """Compile a network for a core and return the row of its figures."""
    compiled = networks.compile_network(stage, target_of(core), folder / f"{network}-{core}.o", numerics)
    row = describe_network(kernels.estimate(compiled, core))
    is_int8 = network.endswith(networks.INT8)
    is_transformed = numerics == Numerics()
    if is_transformed and not any("winograd" in name for name in compiled.functions):
        return []
    kind = "int8" if is_int8 else "winograd" if is_transformed else numerics.arithmetic
    best = best_of_onnxruntime(baselines, core, _INT8 if is_int8 else (numerics.arithmetic,))
    rate = row["macs_per_cycle"]
    return [
        {
            "core": core,
            "code": f"ours, {network}",
            "kind": kind,
            "fmla_per_cycle": rate / _LANES[kind] if rate and kind in _LANES else None,
            "ratio": rate / best if best and rate else None,
            **row,
            **describe_memory(list(memory.memory_uses(compiled, 1 if is_int8 else 4))),
        }
    ]


def best_of_onnxruntime(baselines: Sequence[Row], core: str, kinds: Sequence[str]) -> float | None:
    """Return the most products per cycle among loops of some kinds; None if there are none."""
    name = wheels.WHEELS["onnxruntime"][0]
    rows = [row for row in baselines if (row["core"], row["code"]) == (core, name) and row.get("kind") in kinds]
    return max((row["best"] for row in rows), default=None)


def describe_network(estimate: NetworkEstimate) -> Row:
    """Return the figures of a frame."""
    uses, coverage = estimate
    cycles = sum(use.cycles for use in uses)
    notable = [use.loop.macs / use.turn_cycles for use in uses if use.cycles >= _NOTABLE * cycles]
    multipliers = sum(use.turns * use.loop.multipliers for use in uses)
    if not cycles or not multipliers:
        return {"macs_per_cycle": None, "coverage": coverage}
    return {
        "mcycles_per_frame": cycles / 1e6,
        "macs_per_cycle": sum(use.macs for use in uses) / cycles,
        "with_results": _rate(uses),
        **_describe_depthwise(uses),
        "best": max(notable, default=None),
        "worst": min(notable, default=None),
        "loads_per_product": sum(use.turns * use.loop.loads for use in uses) / multipliers,
        "spilling": _share(uses, cycles),
        "epilogues": sum(use.epilogue_cycles for use in uses) / cycles,
        "coverage": coverage,
    }


def describe_memory(uses: Sequence[MemoryUse]) -> Row:
    """Return the bytes per element of kernels that are bound by memory, and the fewest."""
    elements = max(1, sum(use.elements for use in uses))
    return {
        "bytes_per_element": sum(use.total_bytes for use in uses) / elements,
        "fewest_bytes": sum(use.fewest_bytes for use in uses) / elements,
    }


def _describe_depthwise(uses: Sequence[LoopUse]) -> Row:
    depthwise = [use for use in uses if "depthwise" in use.function]
    if not depthwise:
        return {}
    return {
        "depthwise": _rate(depthwise),
        "depthwise_share": _time(depthwise) / _time(uses),
        "depthwise_spills": f"{sum(use.spills > 0 for use in depthwise)} of {len(depthwise)}",
    }


def _rate(uses: Sequence[LoopUse]) -> float:
    return sum(use.macs for use in uses) / _time(uses)


def _time(uses: Sequence[LoopUse]) -> float:
    return sum(use.cycles + use.epilogue_cycles for use in uses)


def _share(uses: Sequence[LoopUse], cycles: float) -> float:
    return sum(use.cycles for use in uses if use.spills) / cycles


def library_rows(name: str, core: str) -> list[Row]:
    """Return the figures of a library's main loops on a core, by kind of their products."""
    code = wheels.WHEELS[name][0]

    def work() -> list[Row]:
        return [describe_main_loops(code, core, each) for each in wheels.main_loops(name, core, kinds_of(core))]

    return rows_or_reason(code, core, work)


def describe_main_loops(code: str, core: str, main_loops: MainLoops) -> Row:
    """Return the figures of main loops of one kind."""
    kind, loops = main_loops
    rates = [rate for rate, _ in loops]
    return {
        "core": core,
        "code": code,
        "kind": kind,
        "fmla_per_cycle": max(rates) / _LANES[kind] if kind in _LANES else None,
        "macs_per_cycle": median(rates),
        "best": max(rates),
        "worst": min(rates),
        "loads_per_product": median([loop.loads / loop.multipliers for _, loop in loops]),
        "loops": len(loops),
    }


if __name__ == "__main__":
    main()
