"""Relay programs, as text or JSON -> Relax, with their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax, tirx

from pipeline.core.shapes import Shapes
from pipeline.errors import ModelError
from pipeline.frontends.input_shapes import resolve
from pipeline.frontends.relay import json_form, parser
from pipeline.frontends.relay.convert import convert
from pipeline.frontends.relay.operators.table import find_unsupported
from pipeline.frontends.relay.params import Params, load_parameters
from pipeline.frontends.relay.scalars import DTYPES
from pipeline.frontends.relay.syntax import Parameter, RelayProgram, TensorType
from pipeline.model.imported_model import ImportedModel
from pipeline.tvm.access import compiler_lock


def load(
    path: Path, shapes: Shapes | None = None, params: Params | None = None, *, real_arithmetic: bool = False
) -> ImportedModel:
    """Read a Relay program.

    The file is of ``mod.astext(show_meta_data=True)`` or ``tvm.ir.save_json(mod)``. `shapes` are extents for inputs
    that the program leaves open, or names with which they stay open; parameters of ``@main`` without a value in
    `params` are inputs of the model. With `real_arithmetic`, quantised operators compute in real numbers between bytes:
    not exactly what the program says, but with scales that can be changed. Raises `ModelError` if the program is
    damaged or uses what is not supported; all such operators are named, with their places.
    """
    try:
        # In UTF-8 whatever the locale says: TVM writes it so.
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{str(path)!r} is not text: byte {error.start} is not UTF-8") from None
    return read(text, str(path), path.stem, shapes or {}, load_parameters(params), real_arithmetic=real_arithmetic)


def read(  # noqa: PLR0913 - all but the first five by keyword
    text: str,
    file: str,
    name: str,
    shapes: Shapes,
    constants: Mapping[str, np.ndarray],
    *,
    real_arithmetic: bool = False,
) -> ImportedModel:
    """Read a Relay program's text or JSON, as `load`."""
    # No Relay text begins with a brace: its blocks stand behind a function's head.
    parse = json_form.parse if text.lstrip().startswith("{") else parser.parse
    try:
        program = parse(text, file)
        # Before operators are looked at: a wrong name of an input is the caller's mistake, and quick to mend.
        inputs, values, notes = _arguments(program, shapes, constants)
        if unsupported := find_unsupported(program):
            raise ModelError(f"{file!r} uses operators that are not supported: {'; '.join(unsupported)}")
        with compiler_lock:
            model = convert(program, inputs, values, name, real_arithmetic=real_arithmetic)
        return replace(model, notes=notes)
    # All known nests are counted and refused with their place; this is for what no count has foreseen.
    except RecursionError:
        raise ModelError(f"{file!r} nests deeper than is supported") from None


def _arguments(
    program: RelayProgram, shapes: Shapes, constants: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], tuple[str, ...]]:
    """Divide the parameters of ``@main`` into inputs and constants, with assumptions."""
    if "main" not in program.functions:
        raise ModelError(f"{program.file!r} has no function '@main'; it has {', '.join(program.functions) or 'none'}")
    parameters = {parameter.name: parameter for parameter in program.functions["main"].parameters}
    if len(parameters) < len(program.functions["main"].parameters):
        raise program.error(program.functions["main"].position, "two parameters of '@main' have the same name")
    patterns = {
        name: _tensor_type(program, parameter).shape for name, parameter in parameters.items() if name not in constants
    }
    input_shapes = resolve(repr(program.file), patterns, shapes)
    # Files of parameters hold more than one program uses, but none in common means that they belong to another.
    if constants and not constants.keys() & parameters.keys():
        raise ModelError(
            f"none of the parameters given ({', '.join(list(constants)[:5])}) is one of {program.file!r}, "
            f"which has {', '.join(list(parameters)[:5])}"
        )
    values = {
        name: _value(program, parameter, constants[name]) for name, parameter in parameters.items() if name in constants
    }
    # One variable for one name, also in different inputs, so that equal extents are known to be equal.
    symbols: dict[str, Any] = {}
    inputs = {
        name: _input(program, parameter, input_shapes.shapes[name], symbols)
        for name, parameter in parameters.items()
        if name not in values
    }
    return inputs, values, input_shapes.notes


def _tensor_type(program: RelayProgram, parameter: Parameter) -> TensorType:
    tensor_type = parameter.type
    if not isinstance(tensor_type, TensorType):
        raise program.error(parameter.position, f"{parameter.name!r} has {tensor_type.text}; expected a tensor")
    if tensor_type.dtype not in DTYPES:
        raise program.error(
            parameter.position, f"{parameter.name!r} has the dtype {tensor_type.dtype!r}, which is not supported"
        )
    return tensor_type


def _value(program: RelayProgram, parameter: Parameter, array: np.ndarray) -> np.ndarray:
    tensor_type = _tensor_type(program, parameter)
    fits = len(array.shape) == len(tensor_type.shape) and all(
        expected_extent in (None, extent)
        for extent, expected_extent in zip(array.shape, tensor_type.shape, strict=True)
    )
    # A cast would be quick to write, but hides that the file belongs to another version of the model.
    if not fits or str(array.dtype) != tensor_type.dtype:
        raise ModelError(
            f"parameter {parameter.name!r} is {array.dtype}{list(array.shape)}, but {program.file!r} has "
            f"{tensor_type.dtype}{['?' if extent is None else extent for extent in tensor_type.shape]}"
        )
    return array


def _input(program: RelayProgram, parameter: Parameter, shape: Sequence[int | str], symbols: dict[str, Any]) -> Any:
    # Kernels count extents in 32 bits, which would wrap without a word.
    if not all(isinstance(extent, str) or 0 < extent < 2**31 for extent in shape):
        raise ModelError(f"input {parameter.name!r} has the shape {list(shape)}; give it extents of 1 to 2147483647")
    extents = [
        symbols.setdefault(extent, tirx.Var(extent, "int64")) if isinstance(extent, str) else extent for extent in shape
    ]
    return relax.Var(parameter.name, relax.TensorType(extents, _tensor_type(program, parameter).dtype))
