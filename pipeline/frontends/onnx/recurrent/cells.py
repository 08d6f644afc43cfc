"""Cells: one step of RNN, LSTM and GRU from the state's product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import StringImm

from pipeline.frontends.onnx.recurrent.activations import Activation
from pipeline.frontends.onnx.recurrent.statements import LANES, TILE, copy, load, product, store
from pipeline.tvm.statements import buffer, constant, loop, number, run, sequence


@dataclass(frozen=True)
class CellForm:
    """Sizes and kind of a recurrent operator in one direction."""

    kind: str
    """``"RNN"``, ``"LSTM"`` or ``"GRU"``."""
    steps: int
    batch: int
    hidden: int
    reverse: bool
    """True if the last step is computed first."""
    activations: Sequence[Activation]
    """ONNX's f, g and h."""
    input_forget: bool = False
    """True if an LSTM forgets just what it takes in."""
    linear_before_reset: bool = False
    """True if a GRU applies its reset gate behind the product."""
    peepholes: bool = False
    """True if an LSTM's gates see the cell."""
    lengths: bool = False
    """True if sequences end before the last step, each at its own one."""

    @property
    def gates(self) -> int:
        """Number of gates, with the candidate of the new state."""
        return {"RNN": 1, "LSTM": 4, "GRU": 3}[self.kind]

    @property
    def products(self) -> tuple[int, ...]:
        """Gates per product with a state; a reset state has its own."""
        return (2, 1) if self.kind == "GRU" and not self.linear_before_reset else (self.gates,)

    @property
    def has_cell(self) -> bool:
        """True with a cell beside the hidden state."""
        return self.kind == "LSTM"


def padded_width(gates: int, hidden: int) -> int:
    """Return the columns of a product, in whole tiles."""
    return -(-gates * hidden // TILE) * TILE


class RecurrentLoop:
    """Writes the function of one direction.

    Its parameters are the projected inputs ``[steps, batch, gates * hidden]``, tiled weights for each product, the
    first hidden state, the first cell of an LSTM, peepholes, the recurrent bias of a GRU that resets behind the
    product, the lengths of the sequences; then the results: all hidden states, the last one, and the last cell.
    """

    def __init__(self, form: CellForm) -> None:
        self._form = form
        rows, hidden = form.batch, form.hidden
        self._inputs = buffer("inputs", [form.steps * rows * form.gates * hidden])
        self._widths = [padded_width(gates, hidden) for gates in form.products]
        self._weights = [buffer("weights", [width * hidden]) for width in self._widths]
        self._state, self._cell = buffer("state", [rows * hidden]), buffer("cell", [rows * hidden])
        self._reset_state = buffer("reset", [rows * hidden])
        self._sums = [buffer("sums", [rows * width]) for width in self._widths]
        self._first_state, self._first_cell = buffer("state0", [rows * hidden]), buffer("cell0", [rows * hidden])
        self._lengths = buffer("lengths", [rows], "int32")
        self._peepholes, self._bias = buffer("peepholes", [3 * hidden]), buffer("bias", [hidden])
        self._results = buffer("results", [form.steps * rows * hidden])
        self._last_state, self._last_cell = buffer("state1", [rows * hidden]), buffer("cell1", [rows * hidden])

    def function(self) -> Any:
        """Return the function."""
        form, size = self._form, self._form.batch * self._form.hidden
        views = self._parameters()
        scratch = [self._state, *self._sums]
        begin = [copy(self._state, self._first_state, size)]
        end = [copy(self._last_state, self._state, size)]
        if form.has_cell:
            scratch.append(self._cell)
            begin.append(copy(self._cell, self._first_cell, size))
            end.append(copy(self._last_cell, self._cell, size))
        if len(form.products) > 1:
            scratch.append(self._reset_state)
        if form.lengths:
            # Behind the end of its sequence a state stays as it is, and results are zeros.
            begin = [self._check_lengths(), *begin, self._zeros()]
        parameters = [buffer(view.name, shape, str(view.dtype)) for view, shape in views]
        declarations = [
            tirx.DeclBuffer(view, data=tirx.buffer.buffer_data(parameter))
            for (view, _), parameter in zip(views, parameters, strict=True)
        ]
        steps = loop("step", form.steps, self._step)
        body = sequence([*declarations, *map(tirx.AllocBuffer, scratch), *begin, steps, *end])
        # Opaque: nothing is fused to it, and no schedule touches it.
        attributes = {"op_pattern": 8, "tirx.is_scheduled": True, "s_tir": True, "tirx.noalias": True}
        return tirx.PrimFunc(parameters, body).with_attr(attributes)

    def _check_lengths(self) -> Any:
        """Return the statement that refuses sequences longer than the steps.

        A reversed sequence would be read beyond the end.
        """
        steps = self._form.steps
        message = f"the length of a sequence is not in 0 to {steps}"

        def check(index: Any) -> Any:
            length = load(self._lengths, index)
            return tirx.AssertStmt(
                tirx.And(length >= 0, length <= steps), StringImm("ValueError"), [StringImm(message)]
            )

        return loop("row", self._form.batch, check)

    def _parameters(self) -> list[tuple[Any, Sequence[int]]]:
        """Return flat views of the parameters, with their shapes."""
        form = self._form
        state = (form.batch, form.hidden)
        inputs: list[tuple[Any, Sequence[int]]] = [(self._inputs, (form.steps, form.batch, form.gates * form.hidden))]
        inputs += [
            (weights, (width // TILE, form.hidden, TILE))
            for weights, width in zip(self._weights, self._widths, strict=True)
        ]
        inputs.append((self._first_state, state))
        results: list[tuple[Any, Sequence[int]]] = [(self._results, (form.steps, *state)), (self._last_state, state)]
        if form.has_cell:
            inputs.append((self._first_cell, state))
            results.append((self._last_cell, state))
        if form.peepholes:
            inputs.append((self._peepholes, (3 * form.hidden,)))
        if form.kind == "GRU" and form.linear_before_reset:
            inputs.append((self._bias, (form.hidden,)))
        if form.lengths:
            inputs.append((self._lengths, (form.batch,)))
        return [*inputs, *results]

    def _step(self, step: Any) -> Any:
        form = self._form
        cell = {"RNN": self._rnn, "LSTM": self._lstm, "GRU": self._gru}[form.kind]
        statements = [self._product(0, self._state)]
        if len(form.products) > 1:
            statements += [self._elements(step, self._reset), self._product(1, self._reset_state)]
        return sequence([*statements, self._elements(step, cell)])

    def _product(self, index: int, source: Any) -> Any:
        sizes = (self._form.batch, self._form.hidden, self._widths[index])
        return product(self._sums[index], source, self._weights[index], sizes)

    def _elements(self, step: Any, write: Callable[[_Elements], list[Any]]) -> Any:
        """Return the loops over a step's elements."""
        form = self._form

        def row(index: Any) -> Any:
            length = load(self._lengths, index).astype("int64") if form.lengths else number(form.steps)
            sequence_step = length - number(1) - step if form.reverse else step
            statement = run(
                form.hidden,
                LANES,
                lambda offset, lanes: sequence(write(_Elements(form, sequence_step, index, offset, lanes))),
            )
            return tirx.IfThenElse(step < length, statement, None) if form.lengths else statement

        return loop("row", form.batch, row)

    def _zeros(self) -> Any:
        size = self._form.steps * self._form.batch * self._form.hidden
        return run(size, LANES, lambda offset, lanes: store(self._results, offset, constant(0.0, lanes), lanes))

    def _gate(self, elements: _Elements, gate: int) -> Any:
        """Return a gate's sum with its projected input."""
        return self._projection(elements, gate) + self._recurrent(elements, gate)

    def _projection(self, elements: _Elements, gate: int) -> Any:
        form = self._form
        row = elements.step * form.batch + elements.row
        return load(self._inputs, (row * form.gates + gate) * form.hidden + elements.at, elements.lanes)

    def _recurrent(self, elements: _Elements, gate: int) -> Any:
        index, first = (0, 0) if gate < self._form.products[0] else (1, self._form.products[0])
        start = elements.row * self._widths[index] + (gate - first) * self._form.hidden
        return load(self._sums[index], start + elements.at, elements.lanes)

    def _store_state(self, elements: _Elements, value: Any) -> list[Any]:
        position, lanes = elements.position, elements.lanes
        start = (elements.step * self._form.batch + elements.row) * self._form.hidden + elements.at
        # Loaded again, so that it is computed once.
        return [
            store(self._state, position, value, lanes),
            store(self._results, start, load(self._state, position, lanes), lanes),
        ]

    def _rnn(self, elements: _Elements) -> list[Any]:
        (activation,) = self._form.activations
        return self._store_state(elements, activation(self._gate(elements, 0), elements.lanes))

    def _lstm(self, elements: _Elements) -> list[Any]:
        # Equations of ONNX's LSTM; its gates come in the order input, output, forget, cell.
        form, lanes, position = self._form, elements.lanes, elements.position
        gate, candidate, output = form.activations
        cell = load(self._cell, position, lanes)
        taken = gate(self._gate(elements, 0) + self._peephole(elements, 0, cell), lanes)
        if form.input_forget:
            retained = constant(1.0, lanes) - taken
        else:
            retained = gate(self._gate(elements, 2) + self._peephole(elements, 2, cell), lanes)
        new_cell = retained * cell + taken * candidate(self._gate(elements, 3), lanes)
        stored = load(self._cell, position, lanes)
        opened = gate(self._gate(elements, 1) + self._peephole(elements, 1, stored), lanes)
        return [
            store(self._cell, position, new_cell, lanes),
            *self._store_state(elements, opened * output(stored, lanes)),
        ]

    def _peephole(self, elements: _Elements, gate: int, cell: Any) -> Any:
        if not self._form.peepholes:
            return constant(0.0, elements.lanes)
        return load(self._peepholes, number(gate * self._form.hidden) + elements.at, elements.lanes) * cell

    def _reset(self, elements: _Elements) -> list[Any]:
        gate, lanes = self._form.activations[0], elements.lanes
        state = load(self._state, elements.position, lanes)
        return [store(self._reset_state, elements.position, gate(self._gate(elements, 1), lanes) * state, lanes)]

    def _gru(self, elements: _Elements) -> list[Any]:
        # Equations of ONNX's GRU; its gates come in the order update, reset, hidden.
        gate, candidate = self._form.activations
        lanes, state = elements.lanes, load(self._state, elements.position, elements.lanes)
        recurrent = self._recurrent(elements, 2)
        if self._form.linear_before_reset:
            reset = gate(self._gate(elements, 1), lanes)
            recurrent = reset * (recurrent + load(self._bias, elements.at, lanes))
        update = gate(self._gate(elements, 0), lanes)
        value = candidate(self._projection(elements, 2) + recurrent, lanes)
        return self._store_state(elements, value + update * (state - value))


@dataclass(frozen=True)
class _Elements:
    """Neighbours of a state in one step and row."""

    form: CellForm
    step: Any
    row: Any
    at: Any
    lanes: int

    @property
    def position(self) -> Any:
        """Where they are in a state of the whole batch."""
        return self.row * self.form.hidden + self.at
