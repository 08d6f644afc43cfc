"""ChainWiring: names of tensors, operators and kernels in a chain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm import relax
from tvm.ir import GlobalVar

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import ModelError, near
from pipeline.model.passes.naming import unique
from pipeline.split.graph import Graph


class ChainWiring:
    """Names of everything in the models in their chain."""

    def __init__(self, models: Mapping[str, Graph], connect: Mapping[str, str]) -> None:
        self._models = models
        self._sources = self._check_connections(connect)
        self._outputs: dict[str, TensorSpec] = {}
        self._read_names: set[str] = set()
        self.chain_inputs: list[TensorSpec] = []
        self.tensors: dict[str, dict[str, str]] = {}
        self.operators: dict[str, dict[str, str]] = {}
        self.kernels: dict[str, dict[Any, Any]] = {}
        # `main` is what the module's own function is called, next to which kernels stand.
        tensors, operators, symbols = set[str](), set[str](), {"main"}
        for name, model in models.items():
            self.tensors[name] = self._connect_inputs(name, model, tensors)
            self.tensors[name] |= _free_names(name, _tensor_names(model), self.tensors[name], tensors)
            self.operators[name] = _free_names(name, (operator.name for operator in model.operators), {}, operators)
            self.kernels[name] = {
                variable: _global(unique(variable.name_hint, symbols), kernel)
                for variable, kernel in model.kernels.items()
            }
            # After the model's inputs are connected, so that no model reads itself; the plain name is the latest
            # model's.
            for spec in model.outputs:
                self._outputs[spec.name] = self._outputs[f"{name}.{spec.name}"] = replace(
                    spec, name=self.tensors[name][spec.name]
                )

    def full_names(self) -> dict[str, str]:
        """Return the chain's names of ``"model.tensor"`` for computed tensors."""
        full = {
            f"{name}.{tensor}": self.tensors[name][tensor]
            for name, model in self._models.items()
            for operator in model.operators
            for tensor in operator.outputs
        }
        return {alias: tensor for alias, tensor in full.items() if alias != tensor}

    def chain_outputs(self, names: Sequence[str] | None) -> Iterable[TensorSpec]:
        """Return the chain's outputs."""
        full = {
            f"{name}.{spec.name}": replace(spec, name=self.tensors[name][spec.name])
            for name, model in self._models.items()
            for spec in model.outputs
        }
        if names is None:
            return [spec for spec in full.values() if spec.name not in self._read_names]
        if not names:
            raise ModelError("a chain needs at least one output")
        kept = [f"{name}.{state.output}" for name, model in self._models.items() for state in model.states]
        return [full[_check_name(name, full, "output")] for name in dict.fromkeys([*names, *kept])]

    def _check_connections(self, connect: Mapping[str, str]) -> dict[str, str]:
        inputs, outputs = (
            {f"{name}.{spec.name}" for name, model in self._models.items() for spec in getattr(model, side)}
            for side in ("inputs", "outputs")
        )
        return {
            _check_name(target, inputs, "input"): _check_name(source, outputs, "output")
            for target, source in connect.items()
        }

    def _connect_inputs(self, name: str, model: Graph, names_in_use: set[str]) -> dict[str, str]:
        """Return the chain's names of a model's inputs."""
        sources = {spec.name: self._sources.get(f"{name}.{spec.name}", spec.name) for spec in model.frame_inputs}
        explicit = {f"{name}.{tensor}" for tensor in sources} & self._sources.keys()
        if self._outputs and not explicit and not self._outputs.keys() & sources.values():
            raise ModelError(_describe_unconnected(name, model, [full for full in self._outputs if "." in full]))
        names = {}
        for spec in model.inputs:
            full, source = f"{name}.{spec.name}", sources.get(spec.name)
            if source is None:
                # A model's own state, also where another's has the same name.
                names[spec.name] = unique(full if spec.name in names_in_use else spec.name, names_in_use)
                self.chain_inputs.append(replace(spec, name=names[spec.name]))
            elif source in self._outputs:
                _check_same(full, spec, source, self._outputs[source])
                names[spec.name] = self._outputs[source].name
                self._read_names.add(names[spec.name])
            elif full in self._sources:
                raise ModelError(f"{full!r} reads {source!r} of a later model; order the models by what they read")
            else:
                names[spec.name] = self._chain_input(full, spec, names_in_use)
        return names

    def _chain_input(self, full: str, spec: TensorSpec, names_in_use: set[str]) -> str:
        """Return the chain's input of the same name, or a new one."""
        for chain_input in self.chain_inputs:
            if chain_input.name == spec.name:
                _check_same(full, spec, chain_input.name, chain_input)
                return chain_input.name
        name = unique(spec.name if spec.name not in names_in_use else full, names_in_use)
        self.chain_inputs.append(replace(spec, name=name))
        return name


def _tensor_names(model: Graph) -> Iterable[str]:
    """Return a model's tensor names, folded ones and tuples included."""
    variables = (line.name for operator in model.operators for line in operator.lines)
    return dict.fromkeys([*model.tensors, *variables, *model.aliases])


def _free_names(model: str, names: Iterable[str], inputs: Mapping[str, str], names_in_use: set[str]) -> dict[str, str]:
    """Return names of non-inputs, prefixed by the model if in use."""
    made_names = [name for name in names if name not in inputs]
    return {name: unique(f"{model}.{name}" if name in names_in_use else name, names_in_use) for name in made_names}


def _global(name: str, kernel: Any) -> GlobalVar:
    """Return a kernel's global variable. A variable that stands alone would have no type, which calls need."""
    return relax.BlockBuilder().add_func(kernel, name)


def _check_name(name: str, names: Iterable[str], role: str) -> str:
    names = list(names)
    if name not in names:
        raise ModelError(
            f"no model of the chain has an {role} {name!r}{near(name, names)}; there are {', '.join(map(repr, names))}"
        )
    return name


def _check_same(reader: str, spec: TensorSpec, source: str, output: TensorSpec) -> None:
    if (spec.shape, spec.dtype) != (output.shape, output.dtype):
        raise ModelError(
            f"{reader!r} takes {spec.dtype}{list(spec.shape)}, but {source!r} is {output.dtype}{list(output.shape)}"
        )


def _describe_unconnected(name: str, model: Graph, outputs: Sequence[str]) -> str:
    inputs = ", ".join(repr(f"{name}.{spec.name}") for spec in model.inputs)
    return (
        f"model {name!r} reads nothing of those before it: its inputs are {inputs}, outputs before it are "
        f"{', '.join(map(repr, outputs))}; connect them, such as "
        f"connect={{'{name}.{model.inputs[0].name}': {outputs[-1]!r}}}"
    )
