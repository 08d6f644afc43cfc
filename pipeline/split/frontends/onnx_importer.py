"""TVM's ONNX importer, taught to keep the model's names and to leave out what only training needs."""

from __future__ import annotations

import contextlib
import functools
import io
from typing import Any

from tvm import relax
from tvm.ir import Call
from tvm.relax.frontend.onnx import onnx_frontend

from pipeline.split.frontends.onnx_data import Data, is_external
from pipeline.split.frontends.onnx_kernels import as_operator
from pipeline.split.frontends.onnx_mended import mended

# TVM would stack all operands and reduce; a chain of two at a time fuses and needs no memory.
_CHAINS = {"Sum": relax.op.add, "Max": relax.op.maximum, "Min": relax.op.minimum}


def unsupported(graph: Any) -> list[str]:
    """Return one text per kind of operator that cannot be imported, naming the first node of that kind."""
    known = {*onnx_frontend._get_convert_map(), "Constant"}  # noqa: SLF001 - there is no public list
    found: dict[str, str] = {}
    for node in graph.node:
        if node.op_type not in known or node.domain not in ("", "ai.onnx"):
            kind = f"{node.domain}.{node.op_type}" if node.domain else str(node.op_type)
            found.setdefault(kind, f"{kind} (node {node.name or node.output[0]!r})")
    return list(found.values())


class Importer(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """Imports a graph and remembers which variable holds which ONNX tensor.

    Attributes
    ----------
    names, operators, aliases : dict
        As in `Imported`.
    where : str
        The node being imported, for error messages.
    """

    def __init__(self, graph: Any, data: Data) -> None:
        super().__init__(None, "float32", sanitize=False)
        self._data = data
        self.names: dict[Any, str] = {}
        self.operators: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.where = "the graph"
        self._pending = iter(graph.node)
        self._emit_te = self.bb.emit_te
        self.bb.emit_te = self._emit_operator

    def from_onnx(self, graph: Any, opset: int) -> Any:
        """Import; TVM prints a converter's arguments on an error, which nobody wants to read."""
        with contextlib.redirect_stdout(io.StringIO()):
            module = super().from_onnx(graph, opset)
        # Parts of a ring, which would keep all constants until Python looks for such.
        del self.bb.emit_te
        self._nodes.clear()
        return module

    def _parse_array(self, tensor_proto: Any) -> Any:
        return self._data.tensor(tensor_proto) if is_external(tensor_proto) else super()._parse_array(tensor_proto)

    def _emit_operator(self, kernel: Any, *given: Any, **named: Any) -> Any:
        operator = as_operator(kernel, *given, **named)
        return self._emit_te(kernel, *given, **named) if operator is None else self.bb.emit(operator)

    def _new_var(self, var_name: str, shape: Any, dtype: str = "float32") -> Any:
        """Make the variable of a model input."""
        var = super()._new_var(var_name, shape, dtype)
        self.names[var] = var_name
        return var

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        node = next(self._pending)
        self.where = f"node {node.name or node.output[0]!r} ({op_name})"
        result = self._convert(op_name, inputs, attrs, opset)
        if op_name == "Dropout" and len(node.output) == 2:
            # The mask of an inference is all ones.
            result = relax.Tuple([result, self.bb.normalize(relax.op.ones(result.ty.shape, "bool"))])
        if node.name:
            self.operators.update(dict.fromkeys(node.output, node.name))
        return self._named(result, list(node.output))

    def _convert(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        if op_name == "Dropout":
            return inputs[0]
        if op_name in _CHAINS:
            return functools.reduce(lambda *pair: self.bb.normalize(_CHAINS[op_name](*pair)), inputs)
        if (value := mended(op_name, self.bb, inputs, attrs)) is not None:
            return value
        return super()._convert_operator(op_name, inputs, attrs, opset)

    def _named(self, value: Any, names: list[str]) -> Any:
        """Bind `value` to variables with the tensors' names, now, so that names follow the nodes."""
        if isinstance(value, relax.Tuple):
            return self._together([self._bound(each, name) for each, name in zip(value, names, strict=False)])
        if hasattr(value, "ty") and hasattr(value.ty, "fields"):
            whole = self.bb.emit(value)
            return self._together([self._bound(relax.TupleGetItem(whole, i), name) for i, name in enumerate(names)])
        return self._bound(value, names[0])

    def _bound(self, value: Any, name: str) -> Any:
        if isinstance(value, Call | relax.TupleGetItem):
            # Without its name: TVM would change one that it uses itself, such as that of a function.
            value = self.bb.emit(value)
        if isinstance(value, relax.Var) and name:
            known = self.names.setdefault(value, name)
            if known != name:
                self.aliases[name] = known
        return value

    @staticmethod
    def _together(values: list[Any]) -> Any:
        return values[0] if len(values) == 1 else relax.Tuple(values)
