"""Clean-up of a whole model, once, before cuts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.model.imported_model import ImportedModel
from pipeline.model.passes import quantized
from pipeline.model.passes.bindings import function, kernels, live, module, operands
from pipeline.model.passes.bindings import replace as with_operands
from pipeline.model.passes.constant_file import ConstantFile
from pipeline.model.passes.constant_outputs import with_inputs
from pipeline.model.passes.fold_batch_norm import fold_affine
from pipeline.model.passes.fold_constants import fold
from pipeline.model.passes.naming import binding_names, name_bindings, tensor_names, with_copies


def clean(model: ImportedModel) -> ImportedModel:
    """Fold constants and norms, drop dead code, name the variables.

    Raises
    ------
    ModelError
        If the model has no output, or control flow, which cannot be cut into stages.
    """
    # The checker of ONNX lets such a file pass.
    if not model.outputs:
        raise ModelError(f"model {model.name!r} has no output; there is nothing to run")
    main = model.module["main"]
    relax_bindings = _bindings(model, main)
    names = binding_names(model, relax_bindings)
    bindings, replacement = fold(
        relax_bindings, names, kernels(model.module), quantized.integer_weights(relax_bindings)
    )
    values = {relax_binding.var: replacement(relax_binding.var) for relax_binding in relax_bindings}
    names |= {param: str(param.name) for param in main.params}
    equal_names = {
        names[var]: names[equal_var] for var, equal_var in values.items() if equal_var != var and equal_var in names
    }
    constant_outputs = dict(zip(model.outputs, _results(main, replacement), strict=True))
    outputs, choices = with_inputs(constant_outputs, list(main.params))
    bindings += choices
    # Only what lives: a dead reader would keep a norm from vanishing in its convolution.
    bindings, successors = fold_affine(live(bindings, outputs.values()), list(outputs.values()), tensor_names(model))
    bindings, moved_names = quantized.arrange(
        live(bindings, outputs.values()), list(outputs.values()), tensor_names(model)
    )
    successors |= moved_names
    # Folding has read what it needs; the constants that are left move to a file of their own, as the model's may
    # change.
    if files := model.parameters:
        files.release()
    constant_file = ConstantFile(operand for binding in bindings for operand in operands(binding.value))
    for binding in bindings:
        binding.value = with_operands(binding.value, constant_file.replacement)
    aliases = name_bindings(bindings, outputs, model, {**model.aliases, **equal_names}, successors)
    # All that has a made-up name is a part of some operator of the model.
    inner_names = {binding.name for binding in bindings} - tensor_names(model)
    bindings, results = with_copies(bindings, outputs)
    return replace(
        model,
        module=module(function(list(main.params), bindings, results), kernels(model.module)),
        outputs=tuple(outputs),
        names={},
        aliases=aliases,
        inner_names=frozenset(inner_names),
        parameters=None,
        constant_file=constant_file,
    )


def _bindings(model: ImportedModel, main: Any) -> list[Any]:
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    for binding in bindings:
        if isinstance(binding, relax.MatchCast):
            tensor = model.names.get(binding.var, str(binding.var.name))
            raise ModelError(
                f"model {model.name!r}: the shape of {tensor!r} depends on the values of other tensors, "
                "which is not supported"
            )
        if isinstance(binding.value, relax.If):
            raise ModelError(f"model {model.name!r} has control flow, which is not supported; export it without")
    return bindings


def _results(main: Any, replacement: Any) -> list[Any]:
    body = replacement(main.body.body)
    return [replacement(field) for field in body.fields] if isinstance(body, relax.Tuple) else [body]
