"""Rates of boards' processors, fitted to published times of networks.

Least squares of the logarithms of predicted over published times, held to data sheets: each parameter has a usual value
and a spread.  Only models whose name says so are fitted; the others judge.  tools/arm/table.py tells what cores do in
float32 and int8.  Fitted are float16, what a result costs, and depthwise convolutions, shared by all cores of a type,
and for each board the rate of its memory, to one core and to all.  Of an accelerator, its rates are fitted, its memory,
its start of an operator, and its depthwise convolutions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from published_models import graph as network
from scipy import stats  # type: ignore[import-untyped]
from scipy.optimize import least_squares  # type: ignore[import-untyped]

import boards
from boards.published import PublishedFigure
from pipeline.core.board.board import Device
from pipeline.core.board.device import Accuracy
from pipeline.core.plan.stage_options import StageOptions
from pipeline.split.planning.problem.costs import estimate_works
from pipeline.split.planning.problem.group_work import GroupWork, group_works

SPREAD = 0.2
"""Standard deviation of a ratio's logarithm, as weight beside that of usual values."""

ROBUST = 1.5
"""Deviations above which a figure weighs less than by its square: sources contradict each other."""

LAUNCH_CYCLES = 8000
"""Start of an operator on a core: a call, the tiles' set-up and a cold cache."""

MANY = 20
"""Figures of a device from which their own quantiles tell the range that holds 90 %."""

ENDS = (0.045, 0.955)
"""Quantiles of these figures, of which those that were not fitted count twice: 90 % of the latter lie between them."""

Prior = tuple[float, float]
"""Usual value, and the standard deviation of its logarithm."""

_CORE: Mapping[str, Prior] = {"result_flops": (30, 0.7), "depthwise": (0.5, 0.4)}
_ONE, _ALL = 0.5, 0.5


@dataclass(frozen=True)
class Cores:
    """A board's cores: type, clock, memory rates of one and of all by STREAM or data sheet, and siblings' boards."""

    core: str
    clock_hz: float
    one: float
    all: float
    same: tuple[str, ...] = ()


CORES: Mapping[str, Cores] = {
    "coral-dev-board": Cores("cortex-a53", 1.5e9, 3e9, 5e9),
    "jetson-nano": Cores("cortex-a57", 1.43e9, 5e9, 1.0e10),
    "jetson-orin-nano": Cores("cortex-a78ae", 1.5e9, 1.0e10, 2.5e10),
    "jetson-orin-nano-super": Cores("cortex-a78ae", 1.7e9, 1.1e10, 3.0e10),
    "jetson-orin-nx": Cores("cortex-a78ae", 2.0e9, 1.1e10, 3.0e10),
    "kv260": Cores("cortex-a53", 1.333e9, 1.8e9, 3.0e9),
    "pynq-z2": Cores("cortex-a9", 0.65e9, 6e8, 1.0e9),
    "raspberry-pi-3b-plus": Cores("cortex-a53", 1.4e9, 1.8e9, 2.2e9),
    "raspberry-pi-4": Cores("cortex-a72", 1.5e9, 3e9, 4e9),
    "raspberry-pi-4-1800": Cores("cortex-a72", 1.8e9, 3e9, 4e9),
    "raspberry-pi-5": Cores(
        "cortex-a76", 2.4e9, 6e9, 8e9, ("raspberry-pi-5-edge-tpu", "raspberry-pi-5-hailo", "raspberry-pi-5-hailo8")
    ),
    "raspberry-pi-zero-2w": Cores("cortex-a53", 1.0e9, 1.3e9, 1.6e9),
    "rk3566": Cores("cortex-a55", 1.8e9, 3e9, 5e9),
    "rk3588": Cores("cortex-a76", 2.4e9, 7e9, 1.5e10, ("rk3588-rocket",)),
    "ultra96": Cores("cortex-a53", 1.2e9, 1.3e9, 1.8e9, ("ultra96-simulated",)),
    "zcu104": Cores("cortex-a53", 1.2e9, 1.8e9, 3.0e9),
}
"""Boards by their cores, also those without figures; LITTLE ones are counted by their cluster's speed."""

_TPU = {"flops": (2e12, 0.4), "bytes_per_s": (2e10, 0.2), "launch_s": (5e-6, 0.7), "refill_bytes_per_s": (4e8, 0.4),
        "elementwise": (0.05, 1.0)}  # fmt: skip
_RKNN = {"int8_flops": (1.5e12, 0.7), "bytes_per_s": (6e9, 0.7), "launch_s": (5e-6, 0.7)}
_TENSOR_CORES = {"flops": (3e12, 0.5), "float16_flops": (6e12, 0.5), "int8_flops": (1.2e13, 0.5),
                 "bytes_per_s": (6e10, 0.5), "launch_s": (1e-5, 0.7)}  # fmt: skip
_HAILO = {"flops": (8e12, 0.7), "bytes_per_s": (6e10, 0.7), "launch_s": (1e-6, 0.7), "refill_bytes_per_s": (3e9, 0.1)}
_INTEL = {"flops": (3e12, 0.7), "int8_flops": (6e12, 0.7), "bytes_per_s": (3e10, 0.5), "launch_s": (2e-5, 0.7)}

ACCELERATORS: Mapping[tuple[str, str], Mapping[str, Prior]] = {
    ("coral-dev-board", "tpu"): _TPU,
    ("jetson-nano", "gpu"): {"float16_flops": (2e11, 0.5), "bytes_per_s": (1e10, 0.5), "launch_s": (5e-5, 0.7)},
    ("jetson-orin-nano-super", "gpu"): _TENSOR_CORES,
    ("jetson-orin-nx", "gpu"): _TENSOR_CORES,
    ("nuc", "gpu"): _INTEL,
    ("nuc", "npu"): _INTEL,
    ("raspberry-pi-5-edge-tpu", "tpu"): _TPU,
    ("raspberry-pi-5-hailo", "npu"): _HAILO,
    ("raspberry-pi-5-hailo8", "npu"): _HAILO,
    ("rk3566", "npu"): _RKNN,
    ("rk3588", "npu0"): _RKNN,
}
"""Fitted rates of accelerators; the rest is in their files. Equal devices of a board have those of the first."""

Values = Mapping[str, float]


def fit_boards(figures: Sequence[PublishedFigure], is_held_out: Callable[[str], bool], *, write: bool) -> None:
    """Fit all processors, print their values, and write them to the boards' files."""
    for core in dict.fromkeys(cores.core for cores in CORES.values()):
        rows = [figure for figure in figures if figure.device == "cpu" and figure.board in CORES
                and CORES[figure.board].core == core]  # fmt: skip
        values = fit(rows, core_priors(core), is_held_out)
        _finish(
            [(board, "cpu") for board, cores in CORES.items() if cores.core == core],
            rows,
            values,
            is_held_out,
            write=write,
        )
    for (board, device), priors in ACCELERATORS.items():
        rows = [figure for figure in figures if (figure.board, figure.device) == (board, device)]
        values = fit(rows, {**priors, "depthwise": (0.3, 0.7)}, is_held_out)
        _finish([(board, device)], rows, values, is_held_out, write=write)


_board = lru_cache(boards.get)


def core_priors(core: str) -> dict[str, Prior]:
    """Return the parameters of a type of cores, in operations per cycle, and of the memories of its boards."""
    priors = dict(_CORE)
    if core in ("cortex-a55", "cortex-a76", "cortex-a78ae"):
        priors["float16_flops"] = (2 * _board(_home(core)).device("cpu").flops / CORES[_home(core)].clock_hz, 0.3)
    if core == "cortex-a9":
        priors |= {"flops": (2, 0.3), "int8_flops": (4, 0.5)}
    for name, cores in CORES.items():
        if cores.core == core:
            priors |= {f"{name} one": (cores.one, _ONE), f"{name} all": (cores.all, _ALL)}
    return priors


def _home(core: str) -> str:
    return next(name for name, cores in CORES.items() if cores.core == core)


def fit(rows: Sequence[PublishedFigure], priors: Mapping[str, Prior], is_held_out: Callable[[str], bool]) -> Values:
    """Return the values of some parameters that fit the figures best."""
    fitted = [figure for figure in rows if not is_held_out(figure.model) and not _is_other_network(figure)]
    usual = np.log([value for value, _ in priors.values()])
    spreads = np.array([spread for _, spread in priors.values()])
    published = np.log([figure.seconds for figure in fitted])

    def residuals(logarithms: np.ndarray) -> np.ndarray:
        values = dict(zip(priors, np.exp(logarithms), strict=True))
        predicted = np.log([predict_seconds(figure, with_values(figure, values)) for figure in fitted])
        return np.concatenate([(predicted - published) / SPREAD, (logarithms - usual) / spreads])

    result = least_squares(residuals, usual, loss="soft_l1", f_scale=ROBUST, diff_step=1e-3)
    return dict(zip(priors, map(float, np.exp(result.x)), strict=True))


def _is_other_network(figure: PublishedFigure) -> bool:
    # Boxes are chosen on the host, which is no part of the networks here; the other's width is not told.
    return figure.device == "tpu" and figure.model.startswith(("ssd_", "deeplab"))


def with_values(figure: PublishedFigure, values: Values) -> Device:
    """Return a figure's device with fitted values."""
    device = _board(figure.board).device(figure.device)
    return replace(device, **device_fields(figure.board, device, values))  # type: ignore[arg-type]


def device_fields(board: str, device: Device, values: Values) -> dict[str, object]:
    """Return the fields of a device that fitted values change."""
    shares = {name: values[name] for name in ("depthwise", "elementwise") if name in values}
    efficiency = {**(device.efficiency or {}), **shares}
    if not device.cores:
        fields = {name: value for name, value in values.items() if name not in shares}
        if "int8_flops" not in fields and "flops" in fields:
            fields["int8_flops"] = fields["flops"]
        return {**fields, "efficiency": efficiency}
    cores = CORES[board]
    one = values[f"{board} one"]
    rates = {name: values[name] * cores.clock_hz for name in ("flops", "int8_flops", "float16_flops") if name in values}
    return rates | {
        "result_flops": values["result_flops"],
        "bytes_per_s": one,
        "memory_bytes_per_s": max(one, values[f"{board} all"]),
        "launch_s": LAUNCH_CYCLES / cores.clock_hz,
        "efficiency": efficiency,
    }


def predict_seconds(figure: PublishedFigure, device: Device) -> float:
    """Return the predicted seconds of a frame on a device alone."""
    winograd = "float32" if "winograd" in figure.options else "float32-exact"
    options = StageOptions(precision="float16" if figure.precision == "float16" else winograd)
    works, nbytes = _work(figure)
    if not device.cores:
        seconds = sum(estimate_works(works, replace(device, families=(), dtypes=()), options))
        board = _board(figure.board)
        link = next(link for link in board.links if set(link.ends) == {"host", device.memory})
        transfer_s = sum(link.latency_s + size / link.bytes_per_s for size in nbytes)
        return max(seconds, transfer_s) if device.dataflow and figure.frames_per_s else seconds + transfer_s
    cores = figure.cores or device.cores[: figure.threads or len(device.cores)]
    clock = (figure.clock_hz or CORES[figure.board].clock_hz) / CORES[figure.board].clock_hz
    rates = {name: getattr(device, name) * clock for name in ("flops", "int8_flops", "float16_flops")}
    device = replace(device, launch_s=device.launch_s / clock, **rates)
    return sum(estimate_works(works, device, options, len(cores))) / device.speed(cores[0])


_works: dict[tuple[str, int, str], tuple[Sequence[GroupWork], list[int]]] = {}


def _work(figure: PublishedFigure) -> tuple[Sequence[GroupWork], list[int]]:
    """Return the work of a figure's network, and the bytes of its inputs and outputs."""
    dtypes = _board(figure.board).device(figure.device).dtypes
    is_int8 = figure.precision == "int8" and (not dtypes or "int8" in dtypes)
    key = figure.model, figure.size, "int8" if is_int8 else "float32"
    if key not in _works:
        graph = network(key[0], key[1] or None, key[2])
        _works[key] = group_works(graph), [spec.nbytes for spec in (*graph.inputs, *graph.outputs)]
    return _works[key]


def accuracy(
    rows: Sequence[PublishedFigure],
    device: Callable[[PublishedFigure], Device],
    is_held_out: Callable[[str], bool],
) -> Accuracy:
    """Return the range of published over predicted rates that holds 90 % of further figures."""
    ratios = [math.log(predict_seconds(figure, device(figure)) / figure.seconds) for figure in rows]
    if len(ratios) >= MANY:
        weights = np.array([2.0 if is_held_out(figure.model) else 1.0 for figure in rows])
        order = np.argsort(ratios)
        shares = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
        low, high = np.interp(ENDS, shares, np.array(ratios)[order])
        return Accuracy(len(ratios), math.exp(low), math.exp(high))
    # Two parameters of a normal distribution are known by so many figures only.
    count = max(len(ratios), 3)
    width = float(stats.t.ppf(0.95, count - 1)) * max(stdev(ratios), 0.1) * math.sqrt(1 + 1 / count)
    return Accuracy(len(ratios), math.exp(mean(ratios) - width), math.exp(mean(ratios) + width))


def _finish(
    devices: Iterable[tuple[str, str]],
    rows: Sequence[PublishedFigure],
    values: Values,
    is_held_out: Callable[[str], bool],
    *,
    write: bool,
) -> None:
    """Print the values of some devices, and write them."""
    print({name: float(f"{value:.3g}") for name, value in values.items()}, flush=True)
    for board, device in devices:
        own = [figure for figure in rows if (figure.board, figure.device) == (board, device)]
        fields = device_fields(board, _board(board).device(device), values)
        if own:
            fields["accuracy"] = span = accuracy(own, lambda figure: with_values(figure, values), is_held_out)
            print(f"{board} {device}: {span}", flush=True)
        note = f"Fitted to {len(own)} published figures" if own else "Of cores of this type on other boards, fitted"
        for name in (board, *(CORES[board].same if device == "cpu" else ())) if write else ():
            # Of equal devices the first one has figures.
            alike = [other.name for other in _board(name).devices if other.name.rstrip("012") == device.rstrip("012")]
            for other in alike:
                write_values(boards.board_path(name), other, fields, f"{note} (python bench/published.py --write)")


def write_values(path: Path, device: str, fields: Mapping[str, object], note: str) -> None:
    """Write fitted values into a device's table of a board's file."""
    text = path.read_text()
    start = text.index(f'\nname = "{device}"') + 1
    end = min((match.start() for match in re.finditer(r"\n\[", text) if match.start() > start), default=len(text))
    block, tail = text[start:end].rstrip("\n"), ""
    if (paragraphs := block.rpartition("\n\n"))[2].startswith("#") and "\n\n" in block:
        # A comment on what comes next.
        block, _, tail = paragraphs
    block = re.sub(r"^# (Fitted to|Of cores of this type) .*\n", "", block + "\n", flags=re.MULTILINE)
    for name in fields:
        block = re.sub(rf"^{name} = .*\n", "", block, flags=re.MULTILINE)
    lines = [f"# {note}.", *(f"{name} = {_text(value)}" for name, value in fields.items())]
    fitted = block.rstrip("\n") + "\n" + "\n".join(lines) + "\n"
    path.write_text(text[:start] + fitted + (f"\n{tail}" if tail else "") + text[end:])


def _text(value: object) -> str:
    if isinstance(value, Accuracy):
        return f"{{ figures = {value.figures}, low = {value.low:.2f}, high = {value.high:.2f} }}"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {share:.2g}" for name, share in value.items()) + " }"
    return re.sub(r"e\+?(-?)0?", r"e\1", f"{value:.2e}") if isinstance(value, float) else str(value)
