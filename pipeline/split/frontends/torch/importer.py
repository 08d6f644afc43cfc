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


def find_unsupported(nodes: Iterable[Any]) -> list[str]:
    """Return one text per kind of operator that cannot be imported, naming the first node of that kind."""
    converter_names = TorchImporter().convert_map
    complaints: dict[str, str] = {}
    for node in nodes:
        # Placeholders and outputs have no operator, and extents are numbers when it comes to importing.
        if node.op != "call_function" or signature.is_number(node):
            continue
        kind = node.target.__name__
        if kind in REFUSED or kind not in converter_names:
            reason = f", {REFUSED[kind]}" if REFUSED.get(kind) else ""
            complaints.setdefault(kind, f"{kind} ({_where(node)}{reason})")
    return list(complaints.values())


def _where(node: Any) -> str:
    # From the outermost module to the innermost, which says most.
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    module = f" in module {stack[-1][0]!r}" if stack and stack[-1][0] else ""
    return f"node {names.of_node(node)!r}{module}"


class TorchImporter(ExportedProgramImporter):  # type: ignore[misc]
    """Imports a program and remembers which variable holds the value of which node.

    Attributes
    ----------
    names, aliases : dict
        As in `ImportedModel`.
    tensors : dict of str to str
        From nodes of the program to the tensors that hold their values.
    tvm_converters : dict
        TVM's own converters by the names of operators.
    current_node : str
        The node being imported, for error messages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[Any, str] = {}
        self.aliases: dict[str, str] = {}
        self.tensors: dict[str, str] = {}
        self.current_node = "the program"
        self._symbols: Mapping[Any, int] = {}

    def create_convert_map(self) -> dict[str, Any]:
        """Return TVM's converters, and ours where those are wrong."""
        self.tvm_converters = super().create_convert_map()
        return {**self.tvm_converters, **converters(self)}

    def values(self, arguments: list[Any]) -> list[Any]:
        """Return the values that stand for the arguments of a node."""
        values: list[Any] = self._retrieve_args(arguments)
        return values

    def run(
        self, program: Any, inputs: Mapping[str, Any], constants: Mapping[str, Any], symbols: Mapping[Any, int]
    ) -> Any:
        """Return the module of a decomposed program, whose open extents are those of `symbols`."""
        self._symbols = symbols
        self.block_builder = relax.BlockBuilder()
        with self.block_builder.function("main", list(inputs.values())):
            with self.block_builder.dataflow():
                # Converters take a bare constant for a number.
                constant_variables = {name: self.block_builder.emit(value) for name, value in constants.items()}
                variables = {**signature.values(program), **constant_variables, **inputs}
                outputs = self._nodes(program, variables, inputs)
                result = self.block_builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
            self.block_builder.emit_func_output(result)
        return self.block_builder.get()

    def _nodes(self, program: Any, variables: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[Any]:
        # An operator that was decomposed is several nodes of one name; the last one has its value.
        last = {names.of_node(node): node for node in program.graph.nodes if node.op == "call_function"}
        for node in program.graph.nodes:
            if node.op == "placeholder":
                self.env[node] = variables[node.name]
                if node.name in inputs:
                    self.names[self.env[node]] = self.tensors[node.name] = node.name
            # Extents are fixed before the import, so that arithmetic of them is numbers and no operators.
            elif node.op == "call_function" and signature.is_number(node):
                self.env[node] = signature.number(node.meta["val"], self._symbols)
            elif node.op == "call_function":
                self.current_node = f"{_where(node)} ({node.target.__name__})"
                # A wrong shape or dtype would go unnoticed until a kernel reads beside a tensor.
                value = self._check_type(node, self.convert_map[node.target.__name__](node))
                self.env[node] = self._name_value(node, value, is_last=last[names.of_node(node)] is node)
            elif node.op == "output":
                return self._outputs(program, node)
            else:
                raise ModelError(f"the program has control flow at {node.name!r}, which is not supported")
        return []

    def _outputs(self, program: Any, node: Any) -> list[Any]:
        kinds = [spec.kind.name for spec in program.graph_signature.output_specs]
        pairs = zip(node.args[0], kinds, strict=True)
        # Other kinds are effects, of which `signature.check` has refused those that matter.
        return [self.env[each] for each, kind in pairs if kind == "USER_OUTPUT" and each is not None]

    def _check_type(self, node: Any, value: Any) -> Any:
        """Refuse a converter's result that has not the shape and the dtype that PyTorch gives to the node."""
        reference = node.meta.get("val")
        if not isinstance(reference, torch.Tensor) or not isinstance(value, relax.Expr):
            return value
        value = value if isinstance(value, relax.Var) else self.block_builder.emit(value)
        own_shape = getattr(value.ty, "shape", None)
        shape = [signature.number(extent, self._symbols) for extent in reference.shape]
        if own_shape is None or [int(extent) for extent in own_shape] != shape:
            raise ModelError(f"TVM makes {value.ty} of {self.current_node}, where PyTorch has {list(reference.shape)}")
        dtype = signature.dtype(reference.dtype, node.name)
        # TVM computes some results in another dtype than PyTorch.
        return value if str(value.ty.dtype) == dtype else self.block_builder.emit(relax.op.astype(value, dtype))

    def _name_value(self, node: Any, value: Any, *, is_last: bool) -> Any:
        if isinstance(value, Call | relax.TupleGetItem):
            value = self.block_builder.emit(value)
        # A tuple has no name: its parts get theirs when they are taken out of it.
        if not isinstance(value, relax.Var) or hasattr(value.ty, "fields"):
            return value
        if is_last:
            name = names.of_node(node)
            variable_name = self.names.setdefault(value, name)
            if variable_name != name:
                self.aliases[name] = variable_name
            self.tensors[node.name] = variable_name
        return value
