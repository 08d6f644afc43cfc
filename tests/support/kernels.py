"""Fusion by TVM itself: the sets of operators that end in one kernel."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import Call, GlobalVar

from pipeline.split import extract
from pipeline.split.graph import Graph
from pipeline.tvm.access import compiler_lock


def by_tvm(graph: Graph) -> list[set[str]]:
    """Return for each kernel the operators in it.

    FuseOps keeps neither names nor, where two groups are alike, two functions.  So each operator first gets a
    function of its own, whose name is found again inside the fused ones.
    """
    (part,) = extract.parts(graph, [])
    with compiler_lock:
        module = relax.transform.LegalizeOps()(extract.module(part))
        module = relax.transform.AnnotateTIROpPattern()(module)
        module, owners = _separate_functions(module, graph)
        module = relax.transform.FuseOps()(module)
    return [{owners[name] for name in operators} for operators in _kernel_calls(module)]


def _separate_functions(module: Any, graph: Graph) -> tuple[Any, dict[str, str]]:
    maker = {name: operator.name for operator in graph.operators for name in operator.outputs}
    maker.update({line.name: operator.name for operator in graph.operators for line in operator.lines})
    main, builder = module["main"], relax.BlockBuilder()
    owners: dict[str, str] = {}
    bindings: list[Any] = []
    pending: list[str] = []
    for binding in (binding for block in main.body.blocks for binding in block.bindings):
        value = binding.value
        if isinstance(value, Call):
            name = f"operator{len(owners)}"
            variable = builder.add_func(module[value.args[0]].with_attr("global_symbol", name), name)
            assert variable.name_hint == name
            value = Call(value.op, [variable, *list(value.args)[1:]], value.attrs, value.ty_args)
            owners[name] = ""
            pending.append(name)
        # What legalizing split has made-up names, except the last one, which keeps the operator's.
        if str(binding.var.name) in maker:
            owners.update(dict.fromkeys(pending, maker[str(binding.var.name)]))
            pending = []
        bindings.append(relax.VarBinding(binding.var, value))
    assert not pending
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], main.body.body)
    main_function = relax.Function(list(main.params), body, main.ret_ty).with_attr("global_symbol", "main")
    result = builder.get()
    result["main"] = main_function
    return relax.transform.Normalize()(result), owners


def _kernel_calls(module: Any) -> list[list[str]]:
    kernels = []
    for binding in (binding for block in module["main"].body.blocks for binding in block.bindings):
        value = binding.value
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            bindings = module[value.op].body.blocks[0].bindings
            kernels.append([str(each.value.args[0].name_hint) for each in bindings if isinstance(each.value, Call)])
        elif isinstance(value, Call):
            kernels.append([str(value.args[0].name_hint)])
    return kernels
