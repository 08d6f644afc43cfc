"""The clean-up of a whole model, once, before it is cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.split import quantized
from pipeline.split.affine import fold_affine
from pipeline.split.fold import fold
from pipeline.split.frontends.imported import Imported
from pipeline.split.kept import Kept
from pipeline.split.lines import function, kernels, live, module, operands
from pipeline.split.lines import replace as with_operands
from pipeline.split.naming import binding_names, given, name_lines, with_copies


def clean(imported: Imported) -> Imported:
    """Fold constants and batch norms, drop what no output needs, and give each variable its tensor's name.

    Raises
    ------
    ModelError
        If the model has control flow, which cannot be cut into stages.
    """
    main = imported.module["main"]
    bindings = _bindings(imported, main)
    names = binding_names(imported, bindings)
    lines, known = fold(bindings, names, kernels(imported.module), quantized.integer_weights(bindings))
    kept = {each.var: known(each.var) for each in bindings}
    names |= {param: str(param.name) for param in main.params}
    same = {names[var]: names[other] for var, other in kept.items() if other != var and other in names}
    outputs = dict(zip(imported.outputs, _results(main, known), strict=True))
    lines, merged = fold_affine(live(lines, outputs.values()), list(outputs.values()), given(imported))
    lines, moved = quantized.arrange(live(lines, outputs.values()), list(outputs.values()), given(imported))
    merged |= moved
    if files := imported.parameters:
        files.release()
    large = Kept(each for line in lines for each in operands(line.value))
    for line in lines:
        line.value = with_operands(line.value, large.instead)
    aliases = name_lines(lines, outputs, imported, {**imported.aliases, **same}, merged)
    inner = {line.name for line in lines} - given(imported)
    lines, results = with_copies(lines, outputs)
    return replace(
        imported,
        module=module(function(list(main.params), lines, results), kernels(imported.module)),
        outputs=tuple(outputs),
        names={},
        aliases=aliases,
        inner=frozenset(inner),
        parameters=None,
        kept=large,
    )


def _bindings(imported: Imported, main: Any) -> list[Any]:
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    for binding in bindings:
        if isinstance(binding, relax.MatchCast):
            tensor = imported.names.get(binding.var, str(binding.var.name))
            raise ModelError(
                f"model {imported.name!r}: the shape of {tensor!r} depends on the values of other tensors, "
                "which is not supported"
            )
        if isinstance(binding.value, relax.If):
            raise ModelError(f"model {imported.name!r} has control flow, which is not supported; export it without")
    return bindings


def _results(main: Any, known: Any) -> list[Any]:
    body = known(main.body.body)
    return list(body.fields) if isinstance(body, relax.Tuple) else [body]
