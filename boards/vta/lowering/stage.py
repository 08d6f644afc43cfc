"""Steps of a network from a stage or a fused operator group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from boards.vta.compiler.network import LayerStep, Network, compile_network
from boards.vta.isa.config import Config
from boards.vta.lowering.operators import lower_binding
from boards.vta.lowering.step_builder import StepBuilder
from boards.vta.lowering.values import MemoryTensor, Unsupported
from pipeline.errors import BuildError

Binding = tuple[Any, Any]
"""A Relax variable and its value."""


@dataclass(frozen=True, eq=False)
class LoweredStage:
    """The steps of a stage.

    Attributes
    ----------
    inputs, outputs : tuple of MemoryTensor
    steps : tuple of LayerStep
    """

    inputs: tuple[MemoryTensor, ...]
    steps: tuple[LayerStep, ...]
    outputs: tuple[MemoryTensor, ...]

    def network(self, config: Config) -> Network:
        """Compile the steps, or raise `Unsupported`."""
        try:
            shapes = [slot.shape for slot in self.inputs]
            return compile_network(config, shapes, self.steps, [slot.number for slot in self.outputs])
        except BuildError as error:
            raise Unsupported(str(error)) from None


def lower(inputs: Sequence[Any], bindings: Sequence[Binding], outputs: Sequence[Any]) -> LoweredStage:
    """Return the steps of some operators.

    Raises
    ------
    Unsupported
        If VTA cannot run one of them; the message says why.
    """
    uses = Counter(operand for _, value in bindings for operand in _operands(value))
    # What leaves the stage is read, too: no later clipping may change it.
    uses.update(outputs)
    builder = StepBuilder(inputs, uses)
    for var, value in bindings:
        lower_binding(builder, var, value)
    tensors = tuple(builder.tensor(output) for output in outputs)
    return LoweredStage(tuple(builder.tensors), tuple(builder.steps), tensors)


def lower_module(module: Any) -> LoweredStage:
    """Lower a stage's module to steps; raises as `lower`."""
    from tvm import relax

    main = module["main"]
    bindings = [(binding.var, binding.value) for block in main.body.blocks for binding in block.bindings]
    body = main.body.body
    # What leaves may be bound together, as a tuple, to a variable.
    body = dict(bindings).get(body, body)
    is_tuple = isinstance(body, relax.Tuple)
    operators = [(var, value) for var, value in bindings if not isinstance(value, relax.Tuple)]
    return lower(list(main.params), operators, list(body.fields) if is_tuple else [main.body.body])


def _operands(value: Any) -> Iterator[Any]:
    # What is no call is another name of a variable.
    arguments: Iterable[Any] = getattr(value, "args", (value,))
    field_lists = (getattr(argument, "fields", (argument,)) for argument in arguments)
    yield from dict.fromkeys(field for fields in field_lists for field in fields)
