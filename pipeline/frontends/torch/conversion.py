"""Exported program -> Relax module, with islands where TVM fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.core.packed_model import PYTORCH
from pipeline.frontends.fallback import Conversion
from pipeline.frontends.torch import names, signature
from pipeline.frontends.torch.folding import fold
from pipeline.frontends.torch.importer import TorchImporter, describe_place
from pipeline.frontends.torch.islands import NodeIsland, constant_island, is_open, units
from pipeline.frontends.torch.operators import NEVER
from pipeline.model.imported_model import ImportedModel, Island


class TorchConversion(Conversion):
    """A decomposed program on its way to a module."""

    def __init__(
        self, name: str, program: Any, inputs: Mapping[str, Any], symbols: Mapping[Any, int], *, fallback: bool
    ) -> None:
        self._name, self._program, self._inputs, self._symbols = name, program, inputs, symbols
        needed_nodes = self._needed_nodes()
        nodes = [node for node in program.graph.nodes if node in needed_nodes]
        super().__init__(repr(name), nodes, PYTORCH, fallback=fallback)
        self._tensors = signature.constants(program)
        self._constants: dict[Any, Any] = {}
        self._values: dict[Any, Any] = {}

    def seeds(self, reasons: Mapping[int, str]) -> Mapping[int, str]:
        """Return the nodes for islands, once constants are folded."""
        refused = {self.operators[number]: reason for number, reason in reasons.items()}
        self._values = fold(self.operators, self._tensors, self._symbols, refused)
        open_nodes = {
            number: "its type or shape is none of a fixed tensor's"
            for number, node in enumerate(self.operators)
            if node.op == "call_function" and is_open(node, self._symbols) and not _has_parts(node)
        }
        seeds = open_nodes | dict(reasons)
        return {number: reason for number, reason in seeds.items() if self.operators[number] not in self._values}

    def is_hopeless(self, cause: str) -> bool:
        """Check for a node nobody may compute."""
        return cause in NEVER

    def form(self, node: Any) -> tuple[Any, ...]:
        """Return a node's operator and non-tensor arguments."""
        plain = [argument for argument in (*node.args, *node.kwargs.items()) if not hasattr(argument, "op")]
        return node.target, node.op, repr(plain)

    def describe(self, node: Any, cause: str) -> str:
        """Name an operator, and where it is."""
        return f"{node.target.__name__} ({describe_place(node)}{cause and ', '}{cause})"

    def _needed_nodes(self, values: Mapping[Any, Any] | None = None) -> set[Any]:
        """Return the nodes behind outputs, up to `values`. Guards and a dropout's mask are left out."""
        outputs = {spec.arg.name for spec in self._program.graph_signature.output_specs if _is_result(spec)}
        pending = [node for node in self._program.graph.nodes if node.op == "output"]
        needed: set[Any] = set()
        while pending:
            node = pending.pop()
            for operand in node.all_input_nodes:
                is_needed = node.op != "output" or operand.name in outputs
                if is_needed and operand not in needed and operand not in (values or {}):
                    needed.add(operand)
                    pending.append(operand)
        return needed

    def import_model(self, reasons: Mapping[int, str]) -> tuple[ImportedModel, Sequence[bytes]]:
        """Import the program. PyTorch has all of its operators, so nobody has to ask."""
        values, needed = self._values, self._needed_nodes(self._values)
        nodes = [node for node in self.operators if node.op == "call_function" and node in needed]
        seeds = {
            node: reasons[number] for number, node in enumerate(self.operators) if number in reasons and node in needed
        }
        parts = units([node for node in nodes if not self._is_number(node)], seeds, values, self._symbols)
        if self.fallback:
            parts += self._constant_outputs(values)
        importer = TorchImporter()
        module = importer.run(self._program, self._inputs, self._as_constants(values), self._symbols, parts)
        modules = names.of_modules(self._program, importer.tensors)
        model = ImportedModel(
            name=self._name,
            module=module,
            outputs=(),
            names=importer.names,
            operators=names.of_operators(modules),
            aliases={**modules, **importer.aliases},
            islands=tuple(self._describe_island(part, importer) for part in parts if isinstance(part, NodeIsland)),
        )
        return model, ()

    def _constant_outputs(self, values: Mapping[Any, Any]) -> list[NodeIsland]:
        outputs = {spec.arg.name for spec in self._program.graph_signature.output_specs if _is_result(spec)}
        constants = [node for node in (*self._tensors, *values) if node.name in outputs]
        inputs = [node for node in signature.user_inputs(self._program) if node.name in self._inputs]
        return [constant_island(node, inputs[0]) for node in constants] if inputs else []

    def _is_number(self, node: Any) -> bool:
        return signature.is_number(node) and not is_open(node, self._symbols)

    def _as_constants(self, values: Mapping[Any, Any]) -> dict[Any, Any]:
        tensors = {node: value for node, value in values.items() if not isinstance(value, list | tuple)}
        for node, value in (self._tensors | tensors).items():
            if node not in self._constants:
                self._constants[node] = signature.constant(value, node.name)
        return {node: self._constants[node] for node in (self._tensors | tensors)}

    def _describe_island(self, island: NodeIsland, importer: TorchImporter) -> Island:
        return Island(importer.tensors[island.outputs[0].name], island.describe_operators(), island.reason)


def _has_parts(node: Any) -> bool:
    """Check for a node with several tensors in its result."""
    return isinstance(node.meta.get("val"), list | tuple)


def _is_result(spec: Any) -> bool:
    """Check for an output of the caller. Effects that matter are refused."""
    return bool(spec.kind.name == "USER_OUTPUT")
