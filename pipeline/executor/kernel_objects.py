"""Kernel objects: functions compiled one by one, in threads, and kept by their content.

TVM's passes take a time that grows faster than a module, so that single functions are faster on one core as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import vm_build

from pipeline.executor import compile_cache, kernels
from pipeline.system.affinity import process_cores
from pipeline.system.file_store import FileStore

FEWEST = 4
"""Functions that are worth a linker's time.  Fewer are compiled in memory."""

Counter = Callable[[int, int], None]
"""Called with the number of compiled kernels, and of all."""


def build(program: Any, target: Any, count: Counter) -> Any | None:
    """Return the executable of lowered Relax, with its kernels as objects; None if they are too few."""
    functions = {
        variable: function for variable, function in program.functions.items() if isinstance(function, tirx.PrimFunc)
    }
    if len(functions) < FEWEST:
        return None
    builder = relax.ExecBuilder()
    vm_build._vmcodegen(builder, program)  # noqa: SLF001 - TVM has it in one function with the rest
    # Without functions: it names the target to whoever links the objects.
    no_functions = tirx.build(tvm.IRModule({}), target, pipeline=kernels.tir_pipeline(target))
    executable = vm_build._vmlink(builder, None, None, [no_functions])  # noqa: SLF001
    with tempfile.TemporaryDirectory(prefix="soc-pipeline-") as scratch:
        compiler = _Compiler(target, Path(scratch), compile_cache.open_cache())
        with ThreadPoolExecutor(max(1, len(process_cores()))) as pool:
            objects = pool.map(compiler.compile, functions, functions.values())
            for number, (path, name) in enumerate(objects, 1):
                executable.mod.import_module(tvm.runtime.load_static_library(str(path), [name]))
                count(number, len(functions))
    return executable


class _Compiler:
    """Compiles functions for a target into files of a folder."""

    def __init__(self, target: Any, folder: Path, store: FileStore | None) -> None:
        self._target, self._folder, self._store = target, folder, store
        self._pipeline = kernels.tir_pipeline(target)

    def compile(self, variable: Any, function: Any) -> tuple[Path, str]:
        """Return a function's object file and name."""
        name = str(variable.name_hint)
        path = self._folder / f"{name}.o"
        key = compile_cache.key_of("kernel", tvm_ffi.structural_hash(function), name, str(self._target))
        content = None if self._store is None else self._store.get(key)
        if content is not None:
            path.write_bytes(content)
            return path, name
        module = tirx.build(tvm.IRModule({variable: function}), self._target, pipeline=self._pipeline)
        module.write_to_file(str(path))
        if self._store is not None:
            self._store.put(key, path.read_bytes())
        return path, name
