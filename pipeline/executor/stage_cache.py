"""Stage cache: compiled stages, with their parameters, by what they follow from."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import tvm_ffi
from tvm import relax
from tvm.ir import GenericConst

from pipeline.core.numerics import EXACT
from pipeline.executor import compile_cache, kernels, library, parameters
from pipeline.executor.executable import CompileOptions
from pipeline.executor.kernels import microarchitecture
from pipeline.executor.parameters import ParameterEntry
from pipeline.executor.stage_code import KernelCall, StageCode
from pipeline.executor.verified_file import VerifiedContent
from pipeline.model.passes.bindings import array, calls
from pipeline.system.memory import contents, pieces, room


class _Facts(msgspec.Struct):
    """Keywords of a `StageCode` that are kept."""

    machine: str
    features: tuple[str, ...]
    runtimes: tuple[str, ...]
    calls: tuple[KernelCall, ...] | None
    processor: str


class _Header(msgspec.Struct):
    """What is in front of a kept stage's library and parameters."""

    entries: list[ParameterEntry]
    library_bytes: int
    facts: _Facts


def key_of(module: Any, target: Any, cores: int, options: CompileOptions) -> str:
    """Return the key of a stage; empty if it follows from more than can be said."""
    # A search's choices have no name, and the inside of a stage answers with layouts.
    if options.tuning is not None or options.channels_last is not None or not kernels.applies(target):
        return ""
    names, constants = list[str](), hashlib.sha256()

    def add(value: Any) -> None:
        constants.update(contents(np.from_dlpack(value.value)))

    functions = sorted((str(variable.name_hint), function) for variable, function in module.functions.items())
    for name, function in functions:
        names.append(name)
        if isinstance(function, relax.Function):
            bindings = [binding for block in function.body.blocks for binding in block.bindings]
            # Kernels are told by the model's tensors that they make.
            names += [str(var.name) for var in (*function.params, *(binding.var for binding in bindings))]
            tvm_ffi.structural_walk(function, (GenericConst, add))
    cpu = options.microarchitecture or microarchitecture.of_target(target)
    # Both are the same code, which the unsplit model and its stages share then.
    numerics = options.numerics
    if numerics.precision == "float32" and not _may_be_transformed(module):
        numerics = replace(numerics, precision=EXACT.precision)
    facts = (tvm_ffi.structural_hash(module), names, constants.hexdigest(), str(target), cores)
    return compile_cache.key_of("stage", *facts, numerics, options.symbolic, repr(cpu))


def _may_be_transformed(module: Any) -> bool:
    """Test for dense, unstrided 3x3 convolutions of real weights, which Winograd's transforms may compute."""
    values = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    convolutions = [value for value in values if calls(value, "nn.conv2d") and array(value.args[1]) is not None]
    return any(
        {1} == {int(step) for step in (call.attrs.groups, *call.attrs.strides, *call.attrs.dilation)}
        and [int(extent) for extent in call.args[1].ty.shape].count(3) > 1
        for call in convolutions
    )


def find(key: str) -> StageCode | None:
    """Return a kept stage, if there is one."""
    store = compile_cache.open_cache() if key else None
    content = None if store is None else store.get(key)
    if content is None:
        return None
    size = int.from_bytes(content[:8], "little")
    header = msgspec.json.decode(content[8 : 8 + size], type=_Header)
    rest = np.frombuffer(content, np.uint8, offset=8 + size)
    values = room(rest.nbytes - header.library_bytes)
    values[:] = rest[header.library_bytes :]
    arrays = parameters.read(values, header.entries)
    return linked(rest[: header.library_bytes].copy(), arrays, **msgspec.structs.asdict(header.facts))


def keep(key: str, code: StageCode) -> None:
    """Keep a linked stage under its key."""
    store = compile_cache.open_cache() if key else None
    if store is None or code.library is None:
        return
    (entries,), arrays = parameters.lay_out([code.parameters])
    facts = _Facts(code.machine, code.features, code.runtimes, code.calls, code.processor)
    text = msgspec.json.encode(_Header(entries, code.library.array.nbytes, facts))
    parts: list[bytes | memoryview] = [len(text).to_bytes(8, "little"), text, code.library.array.data, *pieces(arrays)]
    store.put(key, b"".join(parts))
    store.make_room()


def linked(content: np.ndarray, values: Mapping[str, np.ndarray], **facts: Any) -> StageCode:
    """Return a stage of a library's bytes; `facts` are keywords of `StageCode`."""
    code = VerifiedContent(hashlib.sha256(content.data).hexdigest(), content)
    return StageCode(functools.partial(library.module, code), values, library=code, **facts)
