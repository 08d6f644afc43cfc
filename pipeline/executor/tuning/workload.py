"""Workload: a kernel function for MetaSchedule, with its schedule's key."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import tvm
import tvm_ffi
from tvm import s_tir

from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tir import elementary
from pipeline.executor.tuning.database import TuningKey

LAYOUTS = 1
"""Version of layouts, raised when a kernel change may favour other layouts."""


def module_of(function: Any) -> Any:
    """Return a module with the function as ``main``, independent of its model."""
    # Its name is the model's, and would be part of the structural hash.
    bare = function.without_attr("global_symbol") if "global_symbol" in (function.attrs or {}) else function
    return tvm.IRModule({"main": bare.with_attr({"global_symbol": "main", "tirx.noalias": True})})


def key_of(function: Any, target: Any, cores: int) -> TuningKey:
    """Return the key of a function for a target's cores."""
    shapes = ", ".join(
        f"{parameter.dtype}{[int(extent) for extent in parameter.shape]}" for parameter in function.params
    )
    # The hash is signed; as 64 bits without a sign it always has 16 digits.
    structure = tvm_ffi.structural_hash(module_of(function)["main"]) & (1 << 64) - 1
    return _key(f"{structure:016x}", shapes, target, cores)


def key_of_layout(form: PackedLayout, target: Any, cores: int) -> TuningKey:
    """Return the key of all kernels with a rule's layout."""
    structure = hashlib.sha256(msgspec.json.encode((LAYOUTS, form))).hexdigest()[:16]
    conv = form.conv
    data = [conv.batch, conv.height, conv.width, conv.channels]
    kernel = [conv.out_channels, conv.depth, *conv.kernel]
    shapes = f"float32{data}, kernel{kernel}, float32{list(conv.result)}"
    return _key(structure, shapes, target, cores)


def _key(structure: str, shapes: str, target: Any, cores: int) -> TuningKey:
    # Sorted, so that one target has one text, in whatever order TVM exports its keys.
    description = json.dumps(_json_value(target.export()), sort_keys=True)
    return TuningKey(structure, shapes, description, cores, str(tvm.__version__))


def _json_value(value: Any) -> Any:
    """Convert a TVM target description to JSON."""
    if hasattr(value, "items"):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, str | int | float | bool):
        return value
    return [_json_value(item) for item in value]


def replace_library_calls(function: Any) -> Any:
    """Return a scheduled function as a stage gets it."""
    return elementary.without_library(function)


def with_cores(target: Any, cores: int) -> Any:
    """Return MetaSchedule's target for a number of cores."""
    return tvm.target.Target({**_json_value(target.export()), "num-cores": cores})


def apply_schedule(function: Any, trace: str) -> Any | None:
    """Apply a schedule from JSON; None if it does not fit."""
    schedule = s_tir.Schedule(module_of(function), debug_mask="none")
    try:
        s_tir.Trace.apply_json_to_schedule(json.loads(trace), schedule)
    # TVM raises several kinds of errors for a trace that was made for another function.
    except Exception:  # noqa: BLE001 - whatever is wrong with a schedule, the rule's own takes its place
        return None
    return schedule.mod["main"]
