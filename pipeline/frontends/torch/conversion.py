"""Exported program -> Relax module, with islands where TVM's importer fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.errors import ModelError
from pipeline.frontends.torch import names, signature
from pipeline.frontends.torch.folding import fold
from pipeline.frontends.torch.importer import (
    NodeRefused,
    TorchImporter,
    describe_unsupported,
    find_unsupported,
)
from pipeline.frontends.torch.islands import NodeIsland, constant_island, is_open, units
from pipeline.frontends.torch.operators import NEVER
from pipeline.model.imported_model import ImportedModel, Island

MOST_ATTEMPTS = 50
"""To import a program.  Nodes that are alike fail together."""


class Conversion:
    """A decomposed program on its way to a module.

    Parameters
    ----------
    name : str
        Of the model.
    program : torch.export.ExportedProgram
    inputs : mapping of str to tvm.relax.Var
        By the names of placeholders.
    symbols : mapping
        The extents that symbols stand for.
    """

    def __init__(self, name: str, program: Any, inputs: Mapping[str, Any], symbols: Mapping[Any, int]) -> None:
        self._name, self._program, self._inputs, self._symbols = name, program, inputs, symbols
        self._tensors = signature.constants(program)
        self._constants: dict[Any, Any] = {}

    def run(self, *, fallback: bool) -> ImportedModel:
        """Return the model; what TVM cannot import is in islands, if `fallback` says so.

        Whether TVM can import a node shows only when it tries: after each failure there are more islands.

        Raises
        ------
        ModelError
            If it uses what neither TVM nor PyTorch has; without `fallback`, what TVM has not.
        """
        needed_nodes = self._needed_nodes()
        nodes = [node for node in self._program.graph.nodes if node in needed_nodes]
        reasons = find_unsupported(nodes)
        for _ in range(MOST_ATTEMPTS):
            values = fold(nodes, self._tensors, self._symbols, reasons)
            seeds = {node: reason for node, reason in self._with_open(nodes, reasons).items() if node not in values}
            if seeds and (not fallback or any(reason in NEVER for reason in seeds.values())):
                raise ModelError(f"{self._name!r} uses operators that are not supported: {describe_unsupported(seeds)}")
            try:
                return self._import(nodes, values, seeds, fallback=fallback)
            except NodeRefused as error:
                # Without what led to it, whose frames hold the builder.
                error.__cause__ = error.__context__ = None
                refusal = error.with_traceback(None)
            if not fallback or refusal.node in reasons:
                raise ModelError(f"{self._name!r}: TVM cannot import {refusal.place}: {refusal.reason}")
            reasons |= {node: refusal.reason for node in nodes if _is_like(node, refusal.node)}
        raise ModelError(f"{self._name!r}: TVM cannot import operators of more than {MOST_ATTEMPTS} kinds")

    def _with_open(self, nodes: list[Any], reasons: Mapping[Any, str]) -> dict[Any, str]:
        """Return the reasons, also for nodes whose results kernels do not know."""
        open_nodes = {
            node: "its type or shape is none of a fixed tensor's"
            for node in nodes
            if node.op == "call_function" and is_open(node, self._symbols) and not _has_parts(node)
        }
        return open_nodes | dict(reasons)

    def _needed_nodes(self, values: Mapping[Any, Any] | None = None) -> set[Any]:
        """Return the nodes that outputs depend on but by way of `values`; neither guards nor a dropout's mask."""
        outputs = {spec.arg.name for spec in self._program.graph_signature.output_specs if _is_result(spec)}
        pending = [node for node in self._program.graph.nodes if node.op == "output"]
        needed: set[Any] = set()
        while pending:
            node = pending.pop()
            for other in node.all_input_nodes:
                is_needed = node.op != "output" or other.name in outputs
                if is_needed and other not in needed and other not in (values or {}):
                    needed.add(other)
                    pending.append(other)
        return needed

    def _import(
        self, nodes: Sequence[Any], values: Mapping[Any, Any], reasons: Mapping[Any, str], *, fallback: bool
    ) -> ImportedModel:
        needed = self._needed_nodes(values)
        calls = [node for node in nodes if node.op == "call_function" and node in needed and not self._is_number(node)]
        parts = units(calls, {node: why for node, why in reasons.items() if node in needed}, values, self._symbols)
        if fallback:
            parts += self._constant_outputs(values)
        importer = TorchImporter()
        module = importer.run(self._program, self._inputs, self._as_constants(values), self._symbols, parts)
        modules = names.of_modules(self._program, importer.tensors)
        return ImportedModel(
            name=self._name,
            module=module,
            outputs=(),
            names=importer.names,
            operators=names.of_operators(modules),
            aliases={**modules, **importer.aliases},
            islands=tuple(self._describe(part, importer) for part in parts if isinstance(part, NodeIsland)),
        )

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

    def _describe(self, island: NodeIsland, importer: TorchImporter) -> Island:
        return Island(importer.tensors[island.outputs[0].name], island.describe_operators(), island.reason)


def _has_parts(node: Any) -> bool:
    """Check whether a node makes several tensors, which are taken out of its result."""
    return isinstance(node.meta.get("val"), list | tuple)


def _is_result(spec: Any) -> bool:
    """Check whether an output is one of the caller's; of effects, those that matter are refused."""
    return bool(spec.kind.name == "USER_OUTPUT")


def _is_like(node: Any, other: Any) -> bool:
    """Check whether a node has the operator of another one, and the same arguments but for tensors."""
    return node.op == other.op and node.target == other.target and _plain(node) == _plain(other)


def _plain(node: Any) -> str:
    return repr([each for each in (*node.args, *node.kwargs.items()) if not hasattr(each, "op")])
