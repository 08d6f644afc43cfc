"""Names: a variable is called after the model's tensor that it holds, and no two are called the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tvm import relax

from pipeline.split.frontends.imported import Imported
from pipeline.split.lines import Line, kind


def given(imported: Imported) -> set[str]:
    """Return the names that the model gives to its tensors; all others are made up."""
    return {*imported.names.values(), *imported.aliases, *imported.outputs}


def binding_names(imported: Imported, bindings: Sequence[Any]) -> dict[Any, str]:
    """Name each binding after its tensor; an intermediate after the tensor it leads to, and its own operator."""
    taken = given(imported)
    names: dict[Any, str] = {}
    tensor = imported.outputs[0]
    for binding in reversed(bindings):
        if found := imported.names.get(binding.var):
            names[binding.var] = tensor = found
        else:
            names[binding.var] = unique(f"{tensor}:{kind(binding.value)}", taken)
    return names


def name_lines(
    lines: Sequence[Line],
    outputs: Mapping[str, Any],
    imported: Imported,
    same: Mapping[str, str],
    merged: Mapping[str, str],
) -> dict[str, str]:
    """Call each line after an output, else after a tensor of the model that has its value.

    Parameters
    ----------
    lines : sequence of Line
        They are renamed in place.
    outputs : mapping of str to relax.Var
        The model's outputs.
    imported : Imported
    same, merged : mapping of str to str
        From a name that has no line to one, which may have none either, of the same value, or of a value
        that comes after it.

    Returns
    -------
    dict of str to str
        From each name that has gone to the line, or the model input, that took its place.
    """
    before = {line.name: line for line in lines}
    own = given(imported)
    _name_outputs(lines, outputs)
    for name in same:
        line = before.get(_follow(name, same))
        if name in own and line and line.name not in own:
            line.name = name
    gone = {name: _follow(name, {**same, **merged}) for name in {**same, **merged}}
    now = {name: line.name for name, line in before.items()}
    aliases = now | {name: now.get(target, target) for name, target in gone.items()}
    return {name: target for name, target in aliases.items() if name != target and name in own}


def _name_outputs(lines: Iterable[Line], outputs: Mapping[str, Any]) -> None:
    names: dict[Any, list[str]] = {}
    for name, var in outputs.items():
        names.setdefault(var, []).append(name)
    for line in lines:
        if line.name not in names.get(line.var, [line.name]):
            line.name = names[line.var][0]


def with_copies(lines: Sequence[Line], outputs: Mapping[str, Any]) -> tuple[list[Line], list[Any]]:
    """Give each output a line of its own.

    A second name for one tensor, or another name for a model input, becomes a copy: a stage returns each of its
    tensors once, and never one that the caller owns.

    Returns
    -------
    lines : list of Line
    variables : list of relax.Var
        In the order of `outputs`.
    """
    called = {line.var: line.name for line in lines}
    copies, variables = [], []
    for name, var in outputs.items():
        if isinstance(var, relax.Var) and called.get(var, str(var.name)) != name:
            copies.append(Line(relax.Var(name, var.ty), name, relax.op.astype(var, var.ty.dtype)))
            variables.append(copies[-1].var)
        else:
            variables.append(var)
    return [*lines, *copies], variables


def _follow(name: str, heirs: Mapping[str, str]) -> str:
    while name in heirs:
        name = heirs[name]
    return name


def unique(name: str, taken: set[str]) -> str:
    """Return `name`, with a number if it is taken, and take it."""
    fresh, count = name, 2
    while fresh in taken:
        fresh, count = f"{name}{count}", count + 1
    taken.add(fresh)
    return fresh
