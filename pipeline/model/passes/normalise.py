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

    Raises `ModelError` if the model has no output, or control flow, which cannot be cut into stages.
    """
    # The checker of ONNX lets such a file pass.
    if not model.outputs:
        raise ModelError(f"model {model.name!r} has no output; there is nothing to run")
    main, model_names = model.module["main"], tensor_names(model)
    # 1. Read the bindings, and name each after its tensor.
    relax_bindings = _bindings(model, main)
    names = binding_names(model, relax_bindings)
    # 2. Fold constants.  A variable that is another one's value gives its name to that one.
    weights = quantized.integer_weights(relax_bindings)
    bindings, replacement = fold(relax_bindings, names, kernels(model.module), weights)
    names |= {param: str(param.name) for param in main.params}
    values = {binding.var: replacement(binding.var) for binding in relax_bindings}
    equal_names = {names[var]: names[value] for var, value in values.items() if value != var and value in names}
    # 3. Let constant outputs follow from an input.
    constant_outputs = dict(zip(model.outputs, _results(main, replacement), strict=True))
    outputs, choices = with_inputs(constant_outputs, list(main.params))
    # 4. Merge norms into weights, then arrange quantised operators, each of what lives: a dead reader would keep a norm
    # from vanishing in its convolution.
    results = list(outputs.values())
    bindings, successors = fold_affine(live([*bindings, *choices], results), results, model_names)
    bindings, moved_names = quantized.arrange(live(bindings, results), results, model_names)
    # 5. Move the constants that are left to a file of their own: folding has read the model's, which may change.
    if files := model.parameters:
        files.release()
    constant_file = ConstantFile(operand for binding in bindings for operand in operands(binding.value))
    for binding in bindings:
        binding.value = with_operands(binding.value, constant_file.replacement)
    # 6. Give the model's names to what has their values now; made-up ones are parts of some operator of the model.
    aliases = name_bindings(bindings, outputs, model, {**model.aliases, **equal_names}, successors | moved_names)
    inner_names = {binding.name for binding in bindings} - model_names
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
