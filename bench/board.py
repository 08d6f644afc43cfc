"""Speed of a board, measured on it: our kernels and ONNX Runtime's on one core of each kind, as a table to send in.

Run on the board itself, in a checkout of this project, with nothing else at work:

    python3 -m venv .venv && .venv/bin/pip install -e '.[quantize]'
    .venv/bin/python bench/board.py

It prints Markdown: what the machine is, and a row for each network and kind of core.  On an emulated board it runs as
well, and its times mean nothing.

ours_ms            one frame on one core, weights in memory; the median, as of onnxruntime_ms; both take turns
ratio              ONNX Runtime's time over ours
ghz                the core's clock while it worked, as Linux tells it
products_per_cycle multiply-adds of the network over time and clock; in vectors of four float32, 1 is the most on
                   Cortex-A53, A55 and A72, and 2 on Cortex-A76
estimated          the same as tools/arm/table.py estimates it for this core, the mean over networks
other_code_ms      one frame by the code for the board's first kind of core, where this one has code of its own
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cpu import Run, by_onnxruntime, time_sides
from report import Row, environment, installed_version, parser, text

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.executor import core_estimates, core_kinds, host, host_target
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.system.threads import run_in_thread
from pipeline.system.version import VERSION

# Both folders of scripts lie in the repository's root.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.arm import networks

QUICK = ("squeezenet",)
SYSTEM = Path("/sys/devices/system/cpu")


class CoreKind(NamedTuple):
    """Cores that are alike: the first one's number, and the device as they are."""

    name: str
    core: int
    device: Device


def main() -> None:
    options = arguments()
    names = options.network or (QUICK if options.quick else networks.NAMES)
    rows: list[Row] = []
    kinds = core_kinds_here()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for kind in kinds:
                work = functools.partial(measure, name, kind, kinds[0], Path(folder), 0.2 if options.quick else 2.0)
                # A thread of its own: TVM's pool and the core it is pinned to belong to the caller.
                rows.append(run_in_thread(work, "bench"))
    print(markdown(machine_facts(), rows))
    if options.json:
        options.json.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--network", nargs="+", choices=networks.NAMES, metavar="NAME",
                         help=", ".join(networks.NAMES))  # fmt: skip
    return options.parse_args()


def core_kinds_here() -> list[CoreKind]:
    """Return the kinds of cores of this machine, the fastest first."""
    cpu = host.board().devices[0]
    if not cpu.clusters:
        return [CoreKind(core_kinds.processor(cpu.cores) or _mcpu(cpu), cpu.cores[0], cpu)]
    devices = [(cluster, core_kinds.at_cluster(cpu, cluster)) for cluster in cpu.clusters]
    return [CoreKind(_mcpu(device), cluster.cores[0], device) for cluster, device in devices]


def _mcpu(device: Device) -> str:
    return core_estimates.name_of(host_target.target(device.target))


def measure(name: str, kind: CoreKind, main_kind: CoreKind, folder: Path, seconds: float) -> Row:
    """Return the row of a network on one core."""
    stage = networks.module(name, folder)
    shape = [int(extent) for extent in stage["main"].params[0].ty.shape]
    frame = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    sides: dict[str, Run] = {"ours": load(stage, kind, kind.core, frame)}
    if kind.name != main_kind.name:
        sides["other_code"] = load(stage, main_kind, kind.core, frame)
    if installed_version("onnxruntime"):
        sides["onnxruntime"] = by_onnxruntime(folder / f"{name}.onnx", 1)
    times = time_sides(sides, frame, seconds)
    hertz = clock(kind.core)
    products = count_products(stage, kind.device, folder)
    kind_of_products = "int8" if name.endswith(networks.INT8) else "float32"
    return {
        "network": name,
        "core": kind.name,
        **{f"{side}_ms": 1e3 * time for side, time in times.items()},
        "ratio": times["onnxruntime"] / times["ours"] if "onnxruntime" in times else None,
        "ghz": hertz / 1e9 if hertz else None,
        "products_per_cycle": products / times["ours"] / hertz if hertz else None,
        "estimated": core_estimates.table().products_per_cycle.get(kind.name, {}).get(kind_of_products),
    }


def load(stage: Any, kind: CoreKind, core: int, frame: np.ndarray) -> Run:
    """Return a call of a stage that is built for a kind of cores, on one core."""
    code = compile_stage(stage, kind.device)
    runtime = CpuRuntime(kind.device)
    runtime.open([core])
    program, tensor = runtime.load(StagePlan("whole", "cpu", (), ()), code), runtime.copy_in(frame)
    return lambda _: runtime.run(program, [tensor])


def count_products(stage: Any, device: Device, folder: Path) -> float:
    """Return the multiply-adds of a frame."""
    network = networks.compile_network(stage, host_target.target(device.target), folder / "kernels.o")
    return sum(operations / 2 * network.calls[name] for name, operations in network.operations.items())


def clock(core: int) -> float | None:
    """Return the cycles per second of a core just now, None where Linux does not tell."""
    try:
        return 1e3 * int((SYSTEM / f"cpu{core}/cpufreq/scaling_cur_freq").read_text())
    except (OSError, ValueError):
        return None


def machine_facts() -> dict[str, str]:
    """Return what a reader of the figures has to know of this machine."""
    is_emulated = host_target.machine() == "aarch64" and "CPU implementer" not in _read("/proc/cpuinfo")
    governors = sorted({_read(str(path)) for path in SYSTEM.glob("cpu[0-9]*/cpufreq/scaling_governor")})
    temperatures = [int(_read(str(path)) or 0) / 1e3 for path in Path("/sys/class/thermal").glob("thermal_zone*/temp")]
    return {
        "board": _read("/proc/device-tree/model") or host_target.full_name(),
        "emulated": "yes: the times mean nothing" if is_emulated else "",
        "system": platform.platform(),
        "memory": next((line.split(":")[1].strip() for line in _read("/proc/meminfo").splitlines()[:1]), ""),
        "governor": ", ".join(governors),
        "hottest after the run": f"{max(temperatures):.0f} degrees Celsius" if temperatures else "",
        "soc-pipeline": VERSION,
        **{name: installed_version(name) or "" for name in ("apache-tvm", "onnxruntime")},
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip("\x00\n ")
    except OSError:
        return ""


def markdown(facts: dict[str, str], rows: Sequence[Row]) -> str:
    """Return facts and rows as they may be pasted into a message."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"- {name}: {value}" for name, value in facts.items() if value]
    table = [names, ["---"] * len(names), *([text(row.get(name)) for name in names] for row in rows)]
    return "\n".join([*lines, "", *(f"| {' | '.join(cells)} |" for cells in table)])


if __name__ == "__main__":
    main()
