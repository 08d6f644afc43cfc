"""Vendor profiles: times of a network by a vendor's own tools.

A format is a file with ``read(text)`` and one line in `FORMATS`. For text of other tools, it returns None or raises
`ValueError` or msgspec's errors.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from pipeline.errors import InputError
from pipeline.system.files import check_regular

if TYPE_CHECKING:
    from pipeline.split.graph import Graph

FORMATS = {
    "trtexec --exportProfile": "trtexec",
    "RKNN's eval_perf": "rknn",
    "hailortcli run --csv or benchmark": "hailort",
}
"""Module of each format, by the tool that writes it."""

LEAST_MATCHED = 0.5
"""Least share of a profile's time in layers with known names. Below it, names are taken for another model's."""


class LayerTime(NamedTuple):
    """Seconds of one frame in a layer, with the model's names of its operators."""

    names: tuple[str, ...]
    seconds: float


class VendorProfile(NamedTuple):
    """Times of one frame."""

    seconds: float
    """Seconds of the whole network; of a chip with several frames inside, those between two results."""
    layers: tuple[LayerTime, ...] = ()
    """Layers, if the tool times them."""


def read_profile(path: Path) -> tuple[str, VendorProfile]:
    """Return the tool and the profile of a file; `InputError` if it is none."""
    try:
        check_regular(path)
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot read the profile {str(path)!r}: {error.strerror}") from None
    for tool, name in FORMATS.items():
        with contextlib.suppress(ValueError, msgspec.MsgspecError):
            profile: VendorProfile | None = importlib.import_module(f"{__name__}.{name}").read(text)
            if profile and 0 < profile.seconds < math.inf:
                return tool, profile
    raise InputError(f"{str(path)!r} has no times of a known tool: {', '.join(FORMATS)}")


def share_out(profile: VendorProfile, graph: Graph, estimates: Sequence[float]) -> tuple[tuple[float, ...], float]:
    """Return seconds of each group that add up to the profile's, and the share of time with known names.

    Times of layers go to the groups of their operators; all others are divided as `estimates` are.
    """
    weights = np.asarray(estimates, np.float64)
    can_run = np.isfinite(weights)
    # 1. Groups of each layer, by the model's names. A group that the device cannot run takes no part.
    groups = {name: group for name, group in group_names(graph) if can_run[group]}
    times = np.zeros(len(weights))
    for layer in profile.layers:
        if members := sorted({groups[name] for name in layer.names if name in groups}):
            times[members] += layer.seconds * weights[members] / (weights[members].sum() or 1.0)
    share = min(1.0, float(times.sum()) / profile.seconds)
    if share < LEAST_MATCHED:
        times[:], share = 0.0, 0.0
    # 2. The rest, such as changes of layout: to groups without a layer, or else to all.
    nameless = can_run & (times == 0)
    weights = np.where(nameless if nameless.any() else can_run, weights, 0.0)
    times += max(profile.seconds - times.sum(), 0.0) * weights / (weights.sum() or 1.0)
    # 3. The total is the profile's: times of layers alone may add up to more.
    times *= profile.seconds / (times.sum() or 1.0)
    return tuple(np.where(can_run, times, np.inf).tolist()), share


def group_names(graph: Graph) -> Iterator[tuple[str, int]]:
    """Yield names of operators and tensors with their group."""
    groups: dict[str, int] = {}
    for operator in graph.operators:
        groups |= dict.fromkeys((operator.name, *operator.outputs), operator.group)
    yield from groups.items()
    yield from ((alias, groups[tensor]) for alias, tensor in graph.aliases.items() if tensor in groups)
