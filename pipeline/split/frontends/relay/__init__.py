"""Relay programs, as text or as JSON -> Relax, with the program's own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError, near
from pipeline.split.frontends.imported import Imported
from pipeline.split.frontends.relay import json_form, params, parser
from pipeline.split.frontends.relay.convert import convert
from pipeline.split.frontends.relay.params import Params
from pipeline.split.frontends.relay.scalars import DTYPES
from pipeline.split.frontends.relay.support import unsupported
from pipeline.split.frontends.relay.syntax import Parameter, Program, TensorType
from pipeline.tvm_access import compiler_lock

Shapes = Mapping[str, Sequence[int]]


def load(path: Path, shapes: Shapes | None = None, parameters: Params | None = None, *, real: bool = False) -> Imported:
    """Read a Relay program.

    Parameters
    ----------
    path : Path
        What ``mod.astext(show_meta_data=True)`` or ``tvm.ir.save_json(mod)`` has written.
    shapes : mapping of str to sequence of int, optional
        Extents for inputs that the program leaves open.
    parameters : mapping, str, Path, optional
        Values of parameters of ``@main``, by name; what has none is an input of the model.
    real : bool
        Whether quantised operators compute in real numbers between bytes: not exactly what the program says, but with
        scales that can be changed.

    Raises
    ------
    ModelError
        If the program is damaged or uses what is not supported; all such operators are named, with their places.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"{str(path)!r} is not text: byte {error.start} is not UTF-8") from None
    return read(text, str(path), path.stem, shapes or {}, params.load(parameters), real=real)


def read(  # noqa: PLR0913 - all but the first five by keyword
    text: str, file: str, name: str, shapes: Shapes, constants: Mapping[str, np.ndarray], *, real: bool = False
) -> Imported:
    """Read the text or the JSON of a Relay program; as `load`.

    Parameters
    ----------
    text : str
    file, name : str
        Of the file, for messages, and of the model.
    shapes : mapping of str to sequence of int
    constants : mapping of str to numpy.ndarray
    real : bool
        As for `load`.
    """
    parse = json_form.parse if text.lstrip().startswith("{") else parser.parse
    try:
        program = parse(text, file)
        inputs, values = _arguments(program, shapes, constants)
        if missing := unsupported(program):
            raise ModelError(f"{file!r} uses operators that are not supported: {'; '.join(missing)}")
        with compiler_lock:
            return convert(program, inputs, values, name, real=real)
    except RecursionError:
        raise ModelError(f"{file!r} nests deeper than is supported") from None


def _arguments(
    program: Program, shapes: Shapes, constants: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Divide the parameters of ``@main`` into inputs of the model and constants."""
    if "main" not in program.functions:
        raise ModelError(f"{program.file!r} has no function '@main'; it has {', '.join(program.functions) or 'none'}")
    declared = {each.name: each for each in program.functions["main"].parameters}
    if len(declared) < len(program.functions["main"].parameters):
        raise program.error(program.functions["main"].place, "two parameters of '@main' have the same name")
    for name in shapes:
        if name not in declared or name in constants:
            left = [each for each in declared if each not in constants]
            raise ModelError(f"{program.file!r} has no input {name!r}; it has {', '.join(left)}{near(name, left)}")
    if constants and not constants.keys() & declared.keys():
        raise ModelError(
            f"none of the parameters given ({', '.join(list(constants)[:5])}) is one of {program.file!r}, "
            f"which has {', '.join(list(declared)[:5])}"
        )
    values = {name: _value(program, each, constants[name]) for name, each in declared.items() if name in constants}
    inputs = {name: _input(program, each, shapes.get(name)) for name, each in declared.items() if name not in values}
    return inputs, values


def _tensor_type(program: Program, parameter: Parameter) -> TensorType:
    found = parameter.type
    if not isinstance(found, TensorType):
        raise program.error(parameter.place, f"{parameter.name!r} has {found.text}; expected a tensor")
    if found.dtype not in DTYPES:
        raise program.error(
            parameter.place, f"{parameter.name!r} has the dtype {found.dtype!r}, which is not supported"
        )
    return found


def _value(program: Program, parameter: Parameter, array: np.ndarray) -> np.ndarray:
    declared = _tensor_type(program, parameter)
    fits = len(array.shape) == len(declared.shape) and all(
        wanted in (None, extent) for extent, wanted in zip(array.shape, declared.shape, strict=True)
    )
    if not fits or str(array.dtype) != declared.dtype:
        raise ModelError(
            f"parameter {parameter.name!r} is {array.dtype}{list(array.shape)}, but {program.file!r} has "
            f"{declared.dtype}{['?' if extent is None else extent for extent in declared.shape]}"
        )
    return array


def _input(program: Program, parameter: Parameter, given: Sequence[int] | None) -> Any:
    declared = _tensor_type(program, parameter)
    name, shape = parameter.name, list(declared.shape if given is None else given)
    open_ = ["?" if extent is None else extent for extent in declared.shape]
    if len(shape) != len(declared.shape) or any(
        wanted not in (None, extent) for extent, wanted in zip(shape, declared.shape, strict=True)
    ):
        raise ModelError(f"input {name!r} has the shape {open_}, which the given shape {shape} does not fit")
    if not all(isinstance(extent, int) and 0 < extent < 2**31 for extent in shape):
        example = ",".join(str(extent or 1) for extent in declared.shape)
        raise ModelError(
            f"input {name!r} has the shape {open_}; give it fixed extents, such as --shape {name}={example}"
        )
    return relax.Var(name, relax.TensorType(shape, declared.dtype))
