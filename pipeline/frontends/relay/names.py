"""Names of a Relay program's variables in the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax


class ProgramNames:
    """Names of the program's tensors, with their variables."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self.tensors: dict[Any, str] = {var: name for name, var in inputs.items()}
        self.operators: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self._used_names = set(inputs)
        self._inputs = set(inputs)
        self._calls: Counter[str] = Counter()
        self._copies: Counter[str] = Counter()
        # From a tensor in a tuple that has a name to that name.
        self._tuples: dict[Any, str] = {}

    def prefix(self, function: str) -> str:
        """Return the name prefix of one call of a function."""
        self._calls[function] += 1
        count = self._calls[function]
        # The first call has no number: most functions are called once, and their names stay what people know.
        return f"{function}." if count == 1 else f"{function}{count}."

    def bind(self, name: str, value: Any) -> None:
        """Let the program's variable `name` stand for a value."""
        name = self._unique(name)
        if isinstance(value, tuple):
            self._tuples.update({part: name for part in value if self._is_new(part)})
        elif self._is_new(value):
            self.tensors[value] = name
            if value in self._tuples:
                self.operators[name] = self._tuples[value]
        # The program has given one tensor two names; cuts may be asked for by either.
        elif isinstance(value, relax.Var):
            self.aliases[name] = self.tensors[value]

    def _is_new(self, value: Any) -> bool:
        """Check for a still unnamed variable."""
        return isinstance(value, relax.Var) and value not in self.tensors

    def outputs(self, results: Sequence[Any]) -> dict[str, Any]:
        """Return the program's results by name, inventing missing ones."""
        outputs_by_name: dict[str, Any] = {}
        for number, value in enumerate(results):
            default = "output" if len(results) == 1 else f"output{number}"
            if self._is_new(value):
                self.tensors[value] = self._unique(default)
            name = self.tensors.get(value, default) if isinstance(value, relax.Var) else default
            # A tensor that leaves twice, and an input that leaves, need a second name.
            outputs_by_name[self._unique(default) if name in outputs_by_name or name in self._inputs else name] = value
        return outputs_by_name

    def _unique(self, name: str) -> str:
        candidate = name
        while candidate in self._used_names:
            self._copies[name] += 1
            candidate = f"{name}.{self._copies[name] + 1}"
        self._used_names.add(candidate)
        return candidate
