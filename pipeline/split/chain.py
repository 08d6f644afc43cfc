"""Chain: several models as one graph, connected by name or mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from tvm import relax
from tvm.ir import GlobalVar

from pipeline.core.compiled_file import CompiledFile
from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.plan.state import State
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import ModelError
from pipeline.model.imported_model import Annotation, Island
from pipeline.model.model_source import ModelSource
from pipeline.model.passes.bindings import Binding
from pipeline.model.passes.bindings import replace as substitute
from pipeline.split.chain_wiring import ChainWiring
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator

Note = TypeVar("Note", Annotation, CompiledFile, Island, Quantization)
"""A remark on a tensor by its name."""


def join(
    models: Mapping[str, Graph], connect: Mapping[str, str] | None = None, outputs: Sequence[str] | None = None
) -> Graph:
    """Join models to one graph, without fused groups across them.

    Raises `ModelError` if there is no model, a name is unknown, two connected tensors differ in shape or dtype, or a
    model reads nothing of those before it. A model reads outputs of earlier ones only. `connect` has the outputs that
    inputs read, both as ``"model.tensor"``; other inputs read the latest earlier output of the same name, or are inputs
    of the chain. `outputs` are tensors that the caller gets; by default all that no model reads.
    """
    if not models:
        raise ModelError("a chain needs at least one model")
    wiring = ChainWiring(models, connect or {})
    # One for all models: a tensor that one makes and another reads has to be one and the same variable.
    variables: dict[str, Any] = {}
    parts = [
        _RenamedModel(model, wiring.tensors[name], wiring.operators[name], wiring.kernels[name], variables)
        for name, model in models.items()
    ]
    operators = tuple(_with_own_groups(parts))
    return Graph(
        name="+".join(models),
        operators=operators,
        tensors={spec.name: spec for part in parts for spec in part.tensors},
        inputs=tuple({spec.name: spec for spec in wiring.chain_inputs}.values()),
        outputs=tuple(wiring.chain_outputs(outputs)),
        aliases={alias: tensor for part in parts for alias, tensor in part.aliases.items()} | wiring.full_names(),
        kernels={variable: function for part in parts for variable, function in part.kernels.items()},
        constant_files=tuple(file for model in models.values() for file in model.constant_files),
        model_ends=tuple(accumulate(len(model.operators) for model in models.values())),
        annotations=tuple(note for part in parts for note in part.annotations),
        islands=tuple(island for part in parts for island in part.islands),
        notes=tuple(note for model in models.values() for note in model.notes),
        quantizations=tuple(quantization for part in parts for quantization in part.quantizations),
        sources=tuple(_sources(models, wiring)),
        card=_card(list(models.values())),
        states=tuple(_states(models, wiring)),
        compiled=tuple(file for part in parts for file in part.compiled),
    )


def _states(models: Mapping[str, Graph], wiring: ChainWiring) -> Iterable[State]:
    """Yield the models' states under the chain's names."""
    for name, model in models.items():
        names = wiring.tensors[name]
        for state in model.states:
            yield replace(state, input=replace(state.input, name=names[state.input.name]), output=names[state.output])


def _card(models: Sequence[Graph]) -> ModelCard | None:
    """Return the first model's preparation with the last one's results."""
    first, last = models[0].card, models[-1].card
    if first is None or last is None:
        return None
    origins = {name: text for name, text in last.origins.items() if not name.startswith("preparation")}
    origins |= {name: text for name, text in first.origins.items() if name.startswith("preparation")}
    return msgspec.structs.replace(last, preparation=first.preparation, origins=origins)


def _sources(models: Mapping[str, Graph], wiring: ChainWiring) -> Iterable[ModelSource]:
    # Behind a model that no other library runs, nothing is known of what the next one reads.
    if all(model.sources for model in models.values()):
        for name, model in models.items():
            yield from (source.renamed(wiring.tensors[name]) for source in model.sources)


class _RenamedModel:
    """A model under the chain's names.

    It has the chain's `names` of its tensors and operators, and global variables of its kernels. Its variables are
    added to the chain's, by their names.
    """

    def __init__(
        self,
        model: Graph,
        names: Mapping[str, str],
        operators: Mapping[str, str],
        kernels: Mapping[Any, Any],
        variables: dict[str, Any],
    ) -> None:
        self._model, self._names, self._operators = model, names, operators
        self._kernels, self._variables = kernels, variables

    @property
    def tensors(self) -> Iterable[TensorSpec]:
        """Specifications of the tensors."""
        return [replace(spec, name=self._names[name]) for name, spec in self._model.tensors.items()]

    @property
    def aliases(self) -> dict[str, str]:
        """Folded names, and the tensors in their place."""
        return {self._names[alias]: self._names[tensor] for alias, tensor in self._model.aliases.items()}

    @property
    def annotations(self) -> list[Annotation]:
        """Devices named by the model, without tensors folded away entirely."""
        return self._rename(self._model.annotations)

    @property
    def islands(self) -> list[Island]:
        """Operators computed by the model's own runtime."""
        return self._rename(self._model.islands)

    @property
    def compiled(self) -> list[CompiledFile]:
        """Operators that are compiled files."""
        return self._rename(self._model.compiled)

    @property
    def quantizations(self) -> list[Quantization]:
        """Quantisation of inputs and outputs."""
        return self._rename(self._model.quantizations)

    def _rename(self, notes: Iterable[Note]) -> list[Note]:
        return [replace(note, tensor=self._names[note.tensor]) for note in notes if note.tensor in self._names]

    @property
    def kernels(self) -> dict[Any, Any]:
        """Functions by their global variables."""
        functions = self._model.kernels
        return {
            target: functions[variable].with_attr("global_symbol", target.name_hint)
            for variable, target in self._kernels.items()
        }

    def operators(self) -> Iterable[Operator]:
        """Yield the operators, in order."""
        for operator in self._model.operators:
            yield replace(
                operator,
                name=self._operators[operator.name],
                inputs=tuple(self._names[name] for name in operator.inputs),
                outputs=tuple(self._names[name] for name in operator.outputs),
                lines=tuple(self._line(line) for line in operator.lines),
            )

    def _line(self, line: Binding) -> Binding:
        value = substitute(line.value, self._substitute)
        var = self._substitute(line.var)
        return Binding(var, str(var.name), value)

    def _substitute(self, expression: Any) -> Any:
        if isinstance(expression, GlobalVar):
            return self._kernels.get(expression, expression)
        if not isinstance(expression, relax.Var):
            return expression
        name = self._names[str(expression.name)]
        return self._variables.setdefault(name, relax.Var(name, expression.ty))


def _with_own_groups(parts: Iterable[_RenamedModel]) -> Iterable[Operator]:
    # The compiler could fuse across two models, but a cut between any two of them has to be legal.
    groups = 0
    for part in parts:
        operators = list(part.operators())
        yield from (replace(operator, group=groups + operator.group) for operator in operators)
        groups += operators[-1].group + 1
