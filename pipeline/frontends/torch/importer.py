"""TVM's importer of exported programs, with their names, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from tvm import relax
from tvm.ir import Call
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from pipeline.core import packed_model
from pipeline.errors import ModelError, reason
from pipeline.frontends.fallback import UNKNOWN, OperatorRefused
from pipeline.frontends.torch import names, signature
from pipeline.frontends.torch.calls import is_promise, write
from pipeline.frontends.torch.islands import NodeIsland
from pipeline.frontends.torch.operators import check_operands, converters, why_refused
from pipeline.model.passes.bindings import call_island


def find_unsupported(nodes: Iterable[Any]) -> dict[int, str]:
    """Return the unimportable nodes with reasons."""
    converter_names = TorchImporter().convert_map
    reasons: dict[int, str] = {}
    for number, node in enumerate(nodes):
        # Placeholders and outputs have no operator, and extents are numbers when it comes to importing.
        if node.op != "call_function" or signature.is_number(node) or is_promise(node):
            continue
        if cause := why_refused(node.target):
            reasons[number] = cause
        elif node.target.__name__ not in converter_names:
            reasons[number] = UNKNOWN
    return reasons


def describe_place(node: Any) -> str:
    """Name a node and its module in the program."""
    # From the outermost module to the innermost, which says most.
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    module = f" in module {stack[-1][0]!r}" if stack and stack[-1][0] else ""
    return f"node {names.of_node(node)!r}{module}"


class TorchImporter(ExportedProgramImporter):  # type: ignore[misc]
    """Importer of a program, with the variable of each node.

    `tensors` hold the values of the program's nodes; `tvm_converters` are TVM's own by the names of operators.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[Any, str] = {}
        self.aliases: dict[str, str] = {}
        self.tensors: dict[str, str] = {}
        self.current_node = "the program"
        self._symbols: Mapping[Any, int] = {}

    def create_convert_map(self) -> dict[str, Any]:
        """Return TVM's converters, the wrong ones replaced."""
        self.tvm_converters = super().create_convert_map()
        return {**self.tvm_converters, **converters(self)}

    def values(self, arguments: list[Any]) -> list[Any]:
        """Return the imported arguments of a node."""
        values: list[Any] = self._retrieve_args(arguments)
        return values

    def run(
        self,
        program: Any,
        inputs: Mapping[str, Any],
        constants: Mapping[Any, Any],
        symbols: Mapping[Any, int],
        units: Sequence[Any],
    ) -> Any:
        """Return the module of a decomposed program.

        Raises `OperatorRefused` if TVM cannot import a node. `constants` are values of nodes that no input changes;
        `units` are nodes and islands to compute, in order.
        """
        self._symbols = symbols
        self.block_builder = relax.BlockBuilder()
        # An operator that was decomposed is several nodes of one name; the last one has its value.
        self._last = {names.of_node(node): node for node in program.graph.nodes if node.op == "call_function"}
        with self.block_builder.function("main", list(inputs.values())):
            with self.block_builder.dataflow():
                # Converters take a bare constant for a number.
                self.env.update((node, self.block_builder.emit(value)) for node, value in constants.items())
                self._add_inputs(program, inputs)
                for unit in units:
                    self._add_unit(unit)
                outputs = self._outputs(program)
                result = self.block_builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
            self.block_builder.emit_func_output(result)
        return self.block_builder.get()

    def _add_inputs(self, program: Any, inputs: Mapping[str, Any]) -> None:
        fixed_values = signature.values(program)
        for node in program.graph.nodes:
            if node.op == "placeholder" and node not in self.env:
                self.env[node] = inputs.get(node.name, fixed_values.get(node.name))
                if node.name in inputs:
                    self.names[self.env[node]] = self.tensors[node.name] = node.name
            # Extents are fixed before the import, so that arithmetic of them is numbers and no operators.
            elif node.op == "call_function" and signature.is_number(node):
                self.env[node] = signature.fixed_number(node.meta["val"], self._symbols)

    def _add_unit(self, unit: Any) -> None:
        node = unit.nodes[0] if isinstance(unit, NodeIsland) else unit
        self.current_node = f"{describe_place(node)} ({getattr(node.target, '__name__', node.target)})"
        try:
            if isinstance(unit, NodeIsland):
                self._add_island(unit)
                return
            check_operands(node)
            # A wrong shape or dtype would go unnoticed until a kernel reads beside a tensor.
            value = self._check_type(node, self.convert_map[node.target.__name__](node))
            self.env[node] = self._name_value(node, value, is_last=self._last[names.of_node(node)] is node)
        except Exception as error:  # TVM raises whatever its converters meet
            raise OperatorRefused(node, self.current_node, reason(error)) from error

    def _add_island(self, island: NodeIsland) -> None:
        """Compute nodes by a call of PyTorch."""
        types = [self._type(node) for node in island.outputs]
        model = write(island.nodes, island.inputs, island.outputs, self._fixed_number)
        call = call_island(packed_model.PYTORCH, model, [self.env[node] for node in island.inputs], types)
        result = self.block_builder.emit(call)
        for number, node in enumerate(island.outputs):
            part = self.block_builder.emit(relax.TupleGetItem(result, number)) if len(types) > 1 else result
            self.env[node] = self._name_value(node, part, is_last=True)

    def _fixed_number(self, node: Any) -> Any:
        return signature.fixed_number(node.meta["val"], self._symbols) if signature.is_number(node) else None

    def _type(self, node: Any) -> Any:
        value = node.meta["val"]
        shape = [signature.fixed_number(extent, self._symbols) for extent in value.shape]
        if None in shape:
            raise ModelError(f"{node.name!r} has a shape that depends on values")
        return relax.TensorType(shape, signature.dtype(value.dtype, node.name))

    def _outputs(self, program: Any) -> list[Any]:
        (node,) = (node for node in program.graph.nodes if node.op == "output")
        kinds = [spec.kind.name for spec in program.graph_signature.output_specs]
        pairs = zip(node.args[0], kinds, strict=True)
        # Other kinds are effects, of which `signature.check` has refused those that matter.
        return [self.env[name] for name, kind in pairs if kind == "USER_OUTPUT" and name is not None]

    def _unused_name(self, name: str) -> str:
        used_names = {*self._last, *self.names.values()}
        while name in used_names:
            name += "_"
        return name

    def _check_type(self, node: Any, value: Any) -> Any:
        """Refuse a result with another shape or dtype than PyTorch's."""
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
            # An operator that was decomposed may be in several islands, each with a result of its own.
            is_only = self._last.get(names.of_node(node)) in (node, None)
            name = names.of_node(node) if is_only else self._unused_name(f"{node.name}_part")
            variable_name = self.names.setdefault(value, name)
            if variable_name != name:
                self.aliases[name] = variable_name
            self.tensors[node.name] = variable_name
        return value
