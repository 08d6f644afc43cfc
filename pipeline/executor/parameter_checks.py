"""Checks of parameters, removed because TVM repeats them per frame."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call

_CHECKS = frozenset({"vm.builtin.check_tensor_info", "vm.builtin.match_shape"})


def removal(inputs: int) -> Any:
    """Return the pass removing ``main``'s parameter checks from the VM's code.

    A network has some hundred such checks, which take a small one longer than its computation.  The kernels check the
    tensors that they are given once more, so that wrong parameters of a bundle are still an error.

    `inputs`: arguments of ``main`` that are no parameters.
    """

    @tvm.transform.module_pass(opt_level=0, name="RemoveParameterChecks")  # type: ignore[untyped-decorator]
    def run(module: Any, _: Any) -> Any:
        main = module["main"]
        parameters = set(main.params[inputs:])
        blocks = [
            type(block)([binding for binding in block.bindings if not _is_check(binding.value, parameters)])
            for block in main.body.blocks
        ]
        body = relax.SeqExpr(blocks, main.body.body)
        function = relax.Function(list(main.params), body, main.ret_ty, is_pure=main.is_pure, attrs=main.attrs)
        return tvm.IRModule({**dict(module.functions.items()), module.get_global_var("main"): function})

    return run


def _is_check(value: Any, parameters: set[Any]) -> bool:
    name = getattr(value.op, "global_symbol", None) if isinstance(value, Call) else None
    # Their results are empty, and nobody reads them.
    return name is not None and str(name) in _CHECKS and value.args[0] in parameters
