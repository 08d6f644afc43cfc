"""TVM's importer of exported programs, with the program's own names, and checked against its shapes and dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from tvm import relax
from tvm.ir import Call
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from pipeline.errors import ModelError
from pipeline.split.frontends.torch import names, signature
from pipeline.split.frontends.torch.operators import REFUSED, converters


def unsupported(nodes: Iterable[Any]) -> list[str]:
    """Return one text per kind of operator that cannot be imported, naming the first node of that kind."""
    known = Importer().convert_map
    found: dict[str, str] = {}
    for node in nodes:
        if node.op != "call_function":
            continue
        kind = node.target.__name__
        if kind in REFUSED or kind not in known:
            reason = f", {REFUSED[kind]}" if REFUSED.get(kind) else ""
            found.setdefault(kind, f"{kind} ({_where(node)}{reason})")
    return list(found.values())


def _where(node: Any) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    inside = f" in module {stack[-1][0]!r}" if stack and stack[-1][0] else ""
    return f"node {names.of_node(node)!r}{inside}"


class Importer(ExportedProgramImporter):  # type: ignore[misc]
    """Imports a program and remembers which variable holds the value of which node.

    Attributes
    ----------
    names, aliases : dict
        As in `Imported`.
    tensors : dict of str to str
        From nodes of the program to the tensors that hold their values.
    tvm_converters : dict
        TVM's own converters by the names of operators.
    where : str
        The node being imported, for error messages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[Any, str] = {}
        self.aliases: dict[str, str] = {}
        self.tensors: dict[str, str] = {}
        self.where = "the program"

    def create_convert_map(self) -> dict[str, Any]:
        """Return TVM's converters, and ours where those are wrong."""
        self.tvm_converters = super().create_convert_map()
        return {**self.tvm_converters, **converters(self)}

    def values(self, arguments: list[Any]) -> list[Any]:
        """Return what stands for the arguments of a node."""
        found: list[Any] = self._retrieve_args(arguments)
        return found

    def run(self, program: Any, inputs: Mapping[str, Any], constants: Mapping[str, Any]) -> Any:
        """Return the module of a decomposed program."""
        self.block_builder = relax.BlockBuilder()
        with self.block_builder.function("main", list(inputs.values())):
            with self.block_builder.dataflow():
                # Converters take a bare constant for a number.
                held = {name: self.block_builder.emit(value) for name, value in constants.items()}
                variables = {**signature.values(program), **held, **inputs}
                outputs = self._nodes(program, variables, inputs)
                result = self.block_builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
            self.block_builder.emit_func_output(result)
        return self.block_builder.get()

    def _nodes(self, program: Any, variables: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[Any]:
        last = {names.of_node(node): node for node in program.graph.nodes if node.op == "call_function"}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                self.env[node] = variables[node.name]
                if node.name in inputs:
                    self.names[self.env[node]] = self.tensors[node.name] = node.name
            elif node.op == "call_function":
                self.where = f"{_where(node)} ({node.target.__name__})"
                value = self._checked(node, self.convert_map[node.target.__name__](node))
                self.env[node] = self._named(node, value, named=last[names.of_node(node)] is node)
            elif node.op == "output":
                return self._outputs(program, node)
            else:
                raise ModelError(f"the program has control flow at {node.name!r}, which is not supported")
        return []

    def _outputs(self, program: Any, node: Any) -> list[Any]:
        kinds = [spec.kind.name for spec in program.graph_signature.output_specs]
        found = zip(node.args[0], kinds, strict=True)
        return [self.env[each] for each, kind in found if kind == "USER_OUTPUT" and each is not None]

    def _checked(self, node: Any, value: Any) -> Any:
        """Refuse a converter's result that has not the shape and the dtype that PyTorch gives to the node."""
        expected = node.meta.get("val")
        if not isinstance(expected, torch.Tensor) or not isinstance(value, relax.Expr):
            return value
        value = value if isinstance(value, relax.Var) else self.block_builder.emit(value)
        found = getattr(value.ty, "shape", None)
        if found is None or len(found) != expected.ndim:
            raise ModelError(f"TVM makes {value.ty} of {self.where}, where PyTorch has {list(expected.shape)}")
        pairs = zip(found, expected.shape, strict=True)
        if any(isinstance(wanted, int) and int(extent) != wanted for extent, wanted in pairs):
            raise ModelError(f"TVM makes {value.ty} of {self.where}, where PyTorch has {list(expected.shape)}")
        dtype = signature.dtype(expected.dtype, node.name)
        return value if str(value.ty.dtype) == dtype else self.block_builder.emit(relax.op.astype(value, dtype))

    def _named(self, node: Any, value: Any, *, named: bool) -> Any:
        if isinstance(value, Call | relax.TupleGetItem):
            value = self.block_builder.emit(value)
        if not isinstance(value, relax.Var) or hasattr(value.ty, "fields"):
            return value
        if named:
            name = names.of_node(node)
            known = self.names.setdefault(value, name)
            if known != name:
                self.aliases[name] = known
            self.tensors[node.name] = known
        return value
