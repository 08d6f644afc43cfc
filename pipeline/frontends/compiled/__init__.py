"""Compiled files -> a graph of one operator: what vendors' compilers have made for a chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm import relax

from pipeline.core.card_file import CompiledTable, read_compiled_table
from pipeline.core.compiled_file import COMPILED_FORMATS, LOADERS, CompiledFile
from pipeline.core.compiled_headers import read_header
from pipeline.core.compiled_headers.header import Header
from pipeline.core.plan.stage_plan import TensorSpec
from pipeline.core.shapes import Shapes
from pipeline.errors import ModelError, reason
from pipeline.frontends.compiled import model_files
from pipeline.frontends.formats import compiled_kind
from pipeline.model.imported_model import ImportedModel
from pipeline.model.passes.bindings import call_packed
from pipeline.system.entry_points import load_entry

Specs = tuple[TensorSpec, ...]

_MODEL_READERS: Mapping[str, Callable[[Path], Header]] = {
    "edgetpu": model_files.read_edge_tpu,
    "epcontext": model_files.read_context,
}
"""Readers of those that are files of a model format."""


def load(path: Path, shapes: Shapes) -> ImportedModel:
    """Read a compiled file; its card has what neither it nor its loader says.

    Raises `ModelError` if it is damaged, or its tensors are nowhere.
    """
    if shapes:
        raise ModelError(f"{str(path)!r} is compiled at one size; leave out the shapes")
    kind = compiled_kind(path)
    card_path = path.with_suffix(".toml")
    card = read_compiled_table(card_path) if card_path.is_file() else CompiledTable()
    try:
        header = _MODEL_READERS[kind](path) if kind in _MODEL_READERS else read_header(path.read_bytes())
    except Exception as error:
        raise ModelError(f"{str(path)!r} is damaged: {reason(error)}; copy it again, or compile it again") from error
    header = _complete(path, header, card)
    file = CompiledFile(header.outputs[0].name, kind, header.chip, card.ms / 1e3)
    notes = (f"{path.name} is compiled for {file}; nothing else computes it, so that it is compared with nothing",)
    model = _import(path, file, header.content or path.read_bytes(), header)
    return replace(model, notes=notes if card.ms else (*notes, _TIME_NOTE))


_TIME_NOTE = (
    "nothing says how long a frame takes there, and plans count its bytes alone; measure by 'plan --measure' on the "
    "board, give a tool's profile to 'profile --import', or write ms under [compiled] of the card"
)


def _complete(path: Path, header: Header, card: CompiledTable) -> Header:
    """Return the facts with those of the card in front, and the loader's behind."""
    header = replace(
        header,
        chip=card.chip or header.chip,
        inputs=card.specs("inputs") or header.inputs,
        outputs=card.specs("outputs") or header.outputs,
    )
    if not (header.inputs and header.outputs) and (described := _ask_loader(path, header.format)):
        chip, inputs, outputs = described
        header = replace(header, chip=header.chip or chip)
        header = replace(header, inputs=header.inputs or inputs, outputs=header.outputs or outputs)
    if missing := [name for name in ("inputs", "outputs") if not getattr(header, name)]:
        raise ModelError(
            f"{str(path)!r} does not say its {' and '.join(missing)}, and no loader here does; write them into "
            f"{path.with_suffix('.toml').name!r} beside it, such as: [compiled] {missing[0]} = "
            '[{ name = "images", shape = [1, 3, 640, 640], dtype = "uint8" }]'
        )
    return header


def _ask_loader(path: Path, kind: str) -> tuple[str, Specs, Specs] | None:
    """Return chip, inputs and outputs by an installed loader's ``describe``, if it has one and the file opens here."""
    describe = getattr(load_entry(LOADERS, COMPILED_FORMATS[kind].word), "describe", None)
    if describe is None:
        return None
    try:
        chip, *ends = describe(path)
        inputs, outputs = (tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in rows) for rows in ends)
    # Whatever a driver may raise where its chip is missing: the card is asked for then.
    except Exception:  # noqa: BLE001
        return None
    return str(chip), inputs, outputs


def _import(path: Path, file: CompiledFile, content: bytes, header: Header) -> ImportedModel:
    """Return a model of one operator, with the file as its first operand."""
    params, types = [relax.Var(spec.name, _type(spec)) for spec in header.inputs], list(map(_type, header.outputs))
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            call = builder.normalize(call_packed(file.format, content, params, types))
            call = call if len(types) == 1 else builder.emit(call)
            items = [call] if len(types) == 1 else [relax.TupleGetItem(call, number) for number in range(len(types))]
            results = [builder.emit_output(item) for item in items]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    names = dict(zip((*params, *results), (spec.name for spec in (*header.inputs, *header.outputs)), strict=True))
    return ImportedModel(
        path.stem,
        builder.get(),
        tuple(spec.name for spec in header.outputs),
        names=names,
        operators={file.tensor: path.stem},
        quantizations=header.quantizations,
        metadata=header.metadata,
        compiled=(file,),
    )


def _type(spec: TensorSpec) -> Any:
    return relax.TensorType(list(spec.shape), spec.dtype)
