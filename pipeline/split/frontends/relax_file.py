"""Relax modules as JSON, read and written; TVM's own tools read what is written here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tvm
from tvm import relax

from pipeline.errors import ModelError
from pipeline.files import write_atomically
from pipeline.split.clean import clean
from pipeline.split.frontends.imported import Imported
from pipeline.split.naming import given
from pipeline.tvm_access import compiler_lock

_ATTRIBUTE = "soc_pipeline"
"""The attribute of a module that holds the names which its variables cannot tell."""


class _Names(msgspec.Struct, forbid_unknown_fields=True):
    """As in `Imported`; `tensors` are those variables that are called after a tensor of the model."""

    model: str
    tensors: list[str]
    outputs: list[str]
    operators: dict[str, str]
    aliases: dict[str, str]


def save(imported: Imported, path: Path) -> None:
    """Clean up a model and write it, so that `load` finds all names again."""
    with compiler_lock:
        tensors = sorted(given(imported))
        imported = clean(imported)
        names = _Names(imported.name, tensors, list(imported.outputs), dict(imported.operators), dict(imported.aliases))
        module = imported.module.with_attr(_ATTRIBUTE, msgspec.json.encode(names).decode())
        text = tvm.ir.save_json(module)
    write_atomically(path, str(text).encode())


def load(path: Path, shapes: Mapping[str, Sequence[int]]) -> Imported:
    """Read a Relax module from the JSON of ``tvm.ir.save_json``.

    Raises
    ------
    ModelError
        If it is damaged, or has no function ``main`` that returns tensors.
    """
    if shapes:
        raise ModelError(f"{str(path)!r} has fixed shapes; leave out those of {', '.join(shapes)}")
    with compiler_lock:
        module = _parse(path)
    main = module["main"]
    variables = [*main.params, *(binding.var for block in main.body.blocks for binding in block.bindings)]
    names = {var: str(var.name) for var in variables}
    stored = _stored(path, module, main, names)
    own = set(stored.tensors)
    names = {var: name for var, name in names.items() if name in own}
    return Imported(stored.model, module, tuple(stored.outputs), names, stored.operators, stored.aliases)


def _parse(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        # TVM ends the process on some texts that are no JSON.
        json.loads(text)
        module = tvm.ir.load_json(text)
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - TVM raises what its classes' checks meet
        reason = str(error).strip().splitlines()
        raise ModelError(f"{str(path)!r} is damaged: {reason[-1] if reason else type(error).__name__}") from None
    found = {str(each.name_hint): value for each, value in module.functions.items()} if _is_module(module) else {}
    if not isinstance(found.get("main"), relax.Function):
        raise ModelError(f"{str(path)!r} has no function 'main'")
    return module


def _is_module(value: Any) -> bool:
    return isinstance(value, tvm.IRModule)


def _stored(path: Path, module: Any, main: Any, names: Mapping[Any, str]) -> _Names:
    """Return the names in the module, or those of its variables."""
    body = main.body.body
    results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    if not all(isinstance(each.ty, relax.TensorType) for each in results):
        raise ModelError(f"{str(path)!r} returns something else than a tensor, or one tuple of tensors")
    text = (module.attrs or {}).get(_ATTRIBUTE)
    if text is None:
        outputs = [names.get(each, "") for each in results]
        unique = [
            name if name and name not in outputs[:number] else f"output{number}" for number, name in enumerate(outputs)
        ]
        return _Names(path.stem, list(names.values()), unique, {}, {})
    try:
        stored = msgspec.json.decode(str(text), type=_Names)
    except msgspec.DecodeError as error:
        raise ModelError(f"{str(path)!r} is damaged: {error}") from None
    if len(stored.outputs) != len(results):
        raise ModelError(f"{str(path)!r} is damaged: {len(results)} results, but {len(stored.outputs)} names of them")
    return stored
