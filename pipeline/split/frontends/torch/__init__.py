"""PyTorch programs, exported by ``torch.export`` -> Relax, with the names of modules and of the exported graph."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.core.native_output import quietly
from pipeline.core.tvm_access import compiler_lock
from pipeline.errors import MissingExtra, ModelError, reason
from pipeline.split.model import ImportedModel

try:
    import torch  # noqa: F401 - the modules below need it
except ImportError as error:
    message = "reading PyTorch models needs the 'torch' extra; run: pip install 'soc-pipeline[torch]'"
    raise MissingExtra(message) from error

from pipeline.split.frontends.torch import names, signature
from pipeline.split.frontends.torch.archive import open_program
from pipeline.split.frontends.torch.decompose import decompose
from pipeline.split.frontends.torch.importer import TorchImporter, find_unsupported


def load(path: Path, shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
    """Read a file of ``torch.export.save``.

    Raises
    ------
    ModelError
        If this PyTorch cannot read it, or it uses what is not supported; all such operators are named.
    """
    return from_object(open_program(path), shapes, path.stem)


def from_object(program: Any, shapes: Mapping[str, Sequence[int]], name: str = "") -> ImportedModel:
    """Import an ``ExportedProgram``; `shapes` gives extents to inputs that it leaves open.

    Raises
    ------
    ModelError
        If it uses what is not supported, all such operators being named, or its parts do not fit each other.
    """
    # A program in memory has no file to be called after.
    name = name or names.of_model(program)
    with compiler_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _decompose_and_import(program, name, shapes)
        except ModelError:
            raise
        except Exception as error:  # PyTorch reads a description without asking whether its parts fit each other
            raise ModelError(f"{name!r} is not consistent: {reason(error, line=0)}") from error


def _decompose_and_import(program: Any, name: str, shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
    # Before the checks, which are on the operators that are imported in fact.
    decomposed_program = decompose(program)
    signature.check(decomposed_program, name)
    if unsupported := find_unsupported(decomposed_program.graph.nodes):
        raise ModelError(f"{name!r} uses operators that are not supported: {'; '.join(unsupported)}")
    # Outputs are named after the program as it was exported; decomposition may replace their nodes.
    return quietly(lambda: _import(name, decomposed_program, names.of_outputs(program), shapes))


def _import(name: str, program: Any, outputs: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
    inputs, symbols = signature.inputs(program, name, shapes)
    importer = TorchImporter()
    try:
        module = importer.run(program, inputs, signature.constants(program), symbols)
    except ModelError:
        raise
    except Exception as error:  # TVM raises whatever its converters meet
        raise ModelError(f"{name!r}: TVM cannot import {importer.current_node}: {reason(error)}") from error
    modules = names.of_modules(program, importer.tensors)
    return ImportedModel(
        name=name,
        module=module,
        outputs=tuple(outputs),
        names=importer.names,
        operators=names.of_operators(modules),
        aliases={**modules, **importer.aliases},
    )
