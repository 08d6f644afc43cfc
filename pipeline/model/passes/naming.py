"""Names: variables named after the model's tensors, each once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.model.imported_model import ImportedModel
from pipeline.model.passes.bindings import Binding, kind
from pipeline.model.passes.contract import Property, contract


def tensor_names(model: ImportedModel) -> set[str]:
    """Return the model's own tensor names; others are made up."""
    return {*model.names.values(), *model.aliases, *model.outputs}


def binding_names(model: ImportedModel, bindings: Sequence[Any]) -> dict[Any, str]:
    """Name each binding after its tensor.

    An intermediate is named after the tensor it leads to, and its operator.
    """
    used_names = tensor_names(model)
    names: dict[Any, str] = {}
    # Until the first tensor with a name turns up: what follows it leads to the outputs.
    tensor = model.outputs[0]
    for binding in reversed(bindings):
        if tensor_name := model.names.get(binding.var):
            names[binding.var] = tensor = tensor_name
        else:
            names[binding.var] = unique(f"{tensor}:{kind(binding.value)}", used_names)
    return names


@contract(requires=(Property.NAMED, Property.COMPUTED), ensures=(Property.NAMED,))
def name_bindings(
    bindings: Sequence[Binding],
    outputs: Mapping[str, Any],
    model: ImportedModel,
    equal_names: Mapping[str, str],
    successors: Mapping[str, str],
) -> dict[str, str]:
    """Name each binding after an output, or an equal tensor.

    Bindings are renamed in place. `equal_names` and `successors` are substitutes of names without a binding, which may
    have none either: of the same value, or of a value that comes after it. Returns the substitute of each removed name:
    a binding or a model input.
    """
    bindings_by_name = {binding.name: binding for binding in bindings}
    model_names = tensor_names(model)
    # Outputs first: the caller asks for them by name.
    _name_outputs(bindings, outputs)
    for name in equal_names:
        binding = bindings_by_name.get(follow(name, equal_names))
        if name in model_names and binding and binding.name not in model_names:
            binding.name = name
    heirs = {name: follow(name, {**equal_names, **successors}) for name in {**equal_names, **successors}}
    current_names = {name: binding.name for name, binding in bindings_by_name.items()}
    aliases = current_names | {name: current_names.get(target, target) for name, target in heirs.items()}
    return {name: target for name, target in aliases.items() if name != target and name in model_names}


def _name_outputs(bindings: Iterable[Binding], outputs: Mapping[str, Any]) -> None:
    names: dict[Any, list[str]] = {}
    for name, var in outputs.items():
        names.setdefault(var, []).append(name)
    for binding in bindings:
        if binding.name not in names.get(binding.var, [binding.name]):
            binding.name = names[binding.var][0]


@contract(
    requires=(Property.ORDERED, Property.NAMED, Property.COMPUTED),
    ensures=(Property.ORDERED, Property.NAMED, Property.OWN),
)
def with_copies(bindings: Sequence[Binding], outputs: Mapping[str, Any]) -> tuple[list[Binding], list[Any]]:
    """Give each output a binding of its own.

    A second name for one tensor, or another name for a model input, becomes a copy: a stage returns each of its tensors
    once, and never one that the caller owns. Returns the variables in the order of `outputs`.
    """
    names_by_variable = {binding.var: binding.name for binding in bindings}
    copies, variables = [], []
    for name, var in outputs.items():
        if isinstance(var, relax.Var) and names_by_variable.get(var, str(var.name)) != name:
            copies.append(Binding(relax.Var(name, var.ty), name, relax.op.astype(var, var.ty.dtype)))
            variables.append(copies[-1].var)
        else:
            variables.append(var)
    return [*bindings, *copies], variables


def unique(name: str, used_names: set[str]) -> str:
    """Return `name`, numbered if taken, and take it."""
    candidate, count = name, 2
    while candidate in used_names:
        candidate, count = f"{name}{count}", count + 1
    used_names.add(candidate)
    return candidate


def follow(name: str, aliases: Mapping[str, str]) -> str:
    """Return the tensor at the end of a name's aliases.

    Raises `ModelError` if the name leads back to itself.
    """
    target = name
    for _ in range(len(aliases) + 1):
        if target not in aliases:
            return target
        target = aliases[target]
    raise ModelError(f"tensor {target!r} is a copy of itself; give each tensor of the model a name of its own")
