"""PyTorch programs of ``torch.export`` -> Relax, with names of modules and graph."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.errors import MissingExtra, ModelError, reason
from pipeline.model.imported_model import ImportedModel
from pipeline.system.distribution import install_command
from pipeline.system.native_output import quietly
from pipeline.tvm.access import compiler_lock

try:
    import torch  # noqa: F401 - the modules below need it
except ImportError as error:
    message = f"reading PyTorch models needs the 'torch' extra; run: {install_command('torch')}"
    raise MissingExtra(message) from error

from pipeline.frontends.torch import names, signature
from pipeline.frontends.torch.archive import open_program, read_extra_files
from pipeline.frontends.torch.conversion import TorchConversion
from pipeline.frontends.torch.decompose import decompose
from pipeline.frontends.torch.importer import find_unsupported


def load(path: Path, shapes: Mapping[str, Sequence[int]], *, fallback: bool = True) -> ImportedModel:
    """Read a file of ``torch.export.save``, with islands if `fallback` allows.

    Raises `ModelError` if this PyTorch cannot read it, or it uses what is not supported; all such operators are named.
    """
    imported_model = from_object(open_program(path), shapes, path.stem, fallback=fallback)
    return replace(imported_model, metadata=read_extra_files(path))


def from_object(
    program: Any, shapes: Mapping[str, Sequence[int]], name: str = "", *, fallback: bool = True
) -> ImportedModel:
    """Import an ``ExportedProgram``; `shapes` has the open inputs' extents.

    Raises `ModelError` if it uses what is not supported, all such operators being named, or its parts do not fit each
    other.
    """
    # A program in memory has no file to be called after.
    name = name or names.of_model(program)
    with compiler_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _decompose_and_import(program, name, shapes, fallback=fallback)
        except ModelError:
            raise
        except Exception as error:  # PyTorch reads a description without asking whether its parts fit each other
            raise ModelError(f"{name!r} is not consistent: {reason(error, line=0)}") from error


def _decompose_and_import(
    program: Any, name: str, shapes: Mapping[str, Sequence[int]], *, fallback: bool
) -> ImportedModel:
    # Before the checks, which are on the operators that are imported in fact.
    decomposed_program = decompose(program, fallback=fallback)
    signature.check(decomposed_program, name)
    inputs, symbols = signature.inputs(decomposed_program, name, shapes)
    conversion = TorchConversion(name, decomposed_program, inputs, symbols, fallback=fallback)
    model = quietly(lambda: conversion.run(find_unsupported(conversion.operators)))
    # Outputs are named after the program as it was exported; decomposition may replace their nodes.
    return replace(model, outputs=tuple(names.of_outputs(program)))
