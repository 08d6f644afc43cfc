"""A stage, or one fused group of operators, as the steps of a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from boards.vta.compiler.network import Network, Step, compiled
from boards.vta.config import Config
from boards.vta.lowering.reader import Reader
from boards.vta.lowering.values import Tensor, Unsupported
from pipeline.errors import BuildError

Binding = tuple[Any, Any]
"""A Relax variable and its value."""


@dataclass(frozen=True, eq=False)
class Lowered:
    """The steps of a stage.

    Attributes
    ----------
    inputs, outputs : tuple of Tensor
    steps : tuple of Step
    """

    inputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Tensor, ...]

    def network(self, config: Config) -> Network:
        """Compile the steps.

        Raises
        ------
        Unsupported
            If one does not fit the accelerator.
        """
        try:
            shapes = [each.shape for each in self.inputs]
            return compiled(config, shapes, self.steps, [each.number for each in self.outputs])
        except BuildError as error:
            raise Unsupported(str(error)) from None


def lower(inputs: Sequence[Any], bindings: Sequence[Binding], outputs: Sequence[Any]) -> Lowered:
    """Return the steps of some operators.

    Parameters
    ----------
    inputs : sequence of relax.Var
    bindings : sequence of (relax.Var, relax.Expr)
        In order.
    outputs : sequence of relax.Var

    Raises
    ------
    Unsupported
        If VTA cannot run one of them; the message says why.
    """
    uses = Counter(each for _, value in bindings for each in _operands(value))
    uses.update(outputs)
    reader = Reader(inputs, uses)
    for var, value in bindings:
        reader.read(var, value)
    found = tuple(reader.tensor(each) for each in outputs)
    return Lowered(tuple(reader.tensors), tuple(reader.steps), found)


def of_module(module: Any) -> Lowered:
    """Return the steps of a stage's module; raises as `lower`."""
    from tvm import relax

    main = module["main"]
    bindings = [(each.var, each.value) for block in main.body.blocks for each in block.bindings]
    body = main.body.body
    # What leaves may be bound together, as a tuple, to a variable.
    body = dict(bindings).get(body, body)
    joined = isinstance(body, relax.Tuple)
    operators = [(var, value) for var, value in bindings if not isinstance(value, relax.Tuple)]
    return lower(list(main.params), operators, list(body.fields) if joined else [main.body.body])


def _operands(value: Any) -> Iterator[Any]:
    # What is no call is another name of a variable.
    arguments: Iterable[Any] = getattr(value, "args", (value,))
    yield from dict.fromkeys(arguments)
