"""Converters of RNN, LSTM and GRU: one input product, then the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.onnx.operators.node_call import Converter, NodeCall
from pipeline.frontends.onnx.recurrent.activations import Function, clipped, read
from pipeline.frontends.onnx.recurrent.cells import CellForm, RecurrentLoop, padded_width
from pipeline.frontends.onnx.recurrent.statements import TILE
from pipeline.model.passes.bindings import array, constant, with_form

_ACTIVATIONS = {"GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh"), "RNN": ("Tanh",)}

_DIRECTIONS = {b"forward": (False,), b"reverse": (True,), b"bidirectional": (False, True)}


def convert(call: NodeCall) -> Any:
    """Return a recurrent operator's states, last states and last cells, or raise `ValueError`."""
    return _RecurrentOperator(call).convert()


CONVERTERS: dict[str, Converter] = dict.fromkeys(("GRU", "LSTM", "RNN"), convert)


class _RecurrentOperator:
    """One node, with ONNX's inputs X, W, R, B, sequence_lens, initial_h, initial_c, P."""

    def __init__(self, call: NodeCall) -> None:
        self._kind, self._builder, self._attributes = call.kind, call.builder, call.attributes
        inputs, attributes = call.inputs, call.attributes
        self._inputs = [*inputs, *[None] * (8 - len(inputs))]
        self._swaps = bool(attributes.get("layout", 0))
        if str(inputs[0].ty.dtype) != "float32":
            raise ValueError(f"of {inputs[0].ty.dtype}, which is not supported")
        data = self._swap_axes(inputs[0]) if self._swaps else inputs[0]
        self._data = data
        self._steps, self._batch, _ = (int(extent) for extent in data.ty.shape)
        self._directions = _DIRECTIONS[attributes.get("direction", b"forward")]
        self._hidden = int(inputs[2].ty.shape[-1])
        if self._steps == 0 or self._batch == 0:
            raise ValueError("without steps")

    def convert(self) -> Any:
        results = [self._direction(number) for number in range(len(self._directions))]
        # Of all states, the direction stands behind the step; of the last ones it stands in front.
        states = self._emit(relax.op.stack([direction[0] for direction in results], 1))
        lasts = [self._emit(relax.op.stack(list(part), 0)) for part in list(zip(*results, strict=True))[1:]]
        if self._swaps:
            states = self._emit(relax.op.permute_dims(states, [2, 0, 1, 3]))
            lasts = [self._emit(relax.op.permute_dims(state, [1, 0, 2])) for state in lasts]
        return relax.Tuple([states, *lasts])

    def _has_lengths(self) -> bool:
        if (lengths := self._inputs[4]) is None:
            return False
        values = array(lengths)
        return values is None or not (values == self._steps).all()

    def _direction(self, number: int) -> list[Any]:
        """Return the results of one direction."""
        form = self._form(number)
        weights, recurrent = self._part(self._inputs[1], number), self._part(self._inputs[2], number)
        bias = self._part(self._inputs[3], number)
        operands = [self._project(form, weights, bias), *self._tile(form, recurrent)]
        operands.append(self._initial(5, number))
        if form.has_cell:
            operands.append(self._initial(6, number))
        if form.peepholes:
            operands.append(self._part(self._inputs[7], number))
        if form.kind == "GRU" and form.linear_before_reset:
            operands.append(self._recurrent_bias(form, bias))
        if form.lengths:
            operands.append(self._inputs[4])
        state = [form.batch, form.hidden]
        shapes = [[form.steps, *state], state, *([state] if form.has_cell else [])]
        types = [relax.TensorType(shape, "float32") for shape in shapes]
        function = RecurrentLoop(form).function()
        kernel = self._builder.add_func(function, form.kind.lower())
        call = relax.op.call_tir(kernel, relax.Tuple(operands), types)
        call = self._builder.emit(with_form(call, self._describe(form, number)))
        return [self._emit(relax.TupleGetItem(call, index)) for index in range(len(types))]

    def _form(self, number: int) -> CellForm:
        attributes = self._attributes
        limit = float(attributes.get("clip", 0.0))
        return CellForm(
            kind=self._kind,
            steps=self._steps,
            batch=self._batch,
            hidden=self._hidden,
            reverse=self._directions[number],
            activations=[clipped(function.activation(), limit) for function in self._functions(number)],
            input_forget=bool(attributes.get("input_forget", 0)),
            linear_before_reset=bool(attributes.get("linear_before_reset", 0)),
            peepholes=self._inputs[7] is not None,
            lengths=self._has_lengths(),
        )

    def _functions(self, number: int) -> list[Function]:
        """Return the activations of one direction."""
        attributes, count = self._attributes, len(_ACTIVATIONS[self._kind])
        names = [name.decode() for name in attributes.get("activations", [])] or [
            *_ACTIVATIONS[self._kind] * len(self._directions)
        ]
        alphas, betas = attributes.get("activation_alpha", []), attributes.get("activation_beta", [])
        return read(names, alphas, betas)[number * count : (number + 1) * count]

    def _describe(self, form: CellForm, number: int) -> dict[str, Any]:
        """Return the operator of one direction in JSON values."""
        functions = self._functions(number)
        return {
            "kind": form.kind, "direction": "reverse" if form.reverse else "forward", "hidden_size": form.hidden,
            "activations": [function.kind for function in functions],
            "activation_alpha": [function.alpha for function in functions if function.alpha is not None],
            "activation_beta": [function.beta for function in functions if function.beta is not None],
            "clip": float(self._attributes.get("clip", 0.0)), "input_forget": int(form.input_forget),
            "linear_before_reset": int(form.linear_before_reset), "peepholes": form.peepholes,
            "lengths": form.lengths,
        }  # fmt: skip

    def _project(self, form: CellForm, weights: Any, bias: Any) -> Any:
        """Return the input products of all steps, with unconditional biases."""
        sums = self._emit(relax.op.matmul(self._data, self._emit(relax.op.permute_dims(weights, [1, 0]))))
        if bias is not None:
            first, second = self._halves(bias)
            if form.kind == "GRU" and form.linear_before_reset:
                # That of the candidate is added in front of the reset.
                mask = np.ones(form.gates * form.hidden, np.float32)
                mask[2 * form.hidden :] = 0
                second = self._emit(relax.op.multiply(second, constant(mask)))
            sums = self._emit(relax.op.add(sums, self._emit(relax.op.add(first, second))))
        return sums

    def _halves(self, bias: Any) -> tuple[Any, Any]:
        """Return the biases of the inputs and of the states."""
        width = int(bias.ty.shape[0]) // 2
        # No split, which makes a tuple: that is not folded.
        first, second = (relax.op.strided_slice(bias, [0], [start], [start + width]) for start in (0, width))
        return self._emit(first), self._emit(second)

    def _recurrent_bias(self, form: CellForm, bias: Any) -> Any:
        if bias is None:
            return constant(np.zeros(form.hidden, np.float32))
        start = 5 * form.hidden
        return self._emit(relax.op.strided_slice(bias, [0], [start], [start + form.hidden]))

    def _tile(self, form: CellForm, recurrent: Any) -> list[Any]:
        """Return each product's recurrent weights in tiles of columns."""
        tiles, start = [], 0
        for gates in form.products:
            end = start + gates * form.hidden
            part = self._emit(relax.op.strided_slice(recurrent, [0], [start], [end]))
            width = padded_width(gates, form.hidden)
            part = self._emit(relax.op.nn.pad(part, [0, width - (end - start), 0, 0]))
            part = self._emit(relax.op.reshape(part, (width // TILE, TILE, form.hidden)))
            tiles.append(self._emit(relax.op.permute_dims(part, [0, 2, 1])))
            start = end
        return tiles

    def _initial(self, position: int, number: int) -> Any:
        value = self._inputs[position]
        if value is None:
            return constant(np.zeros((self._batch, self._hidden), np.float32))
        # With the batch first, the direction is the second axis.
        return self._part(self._emit(relax.op.permute_dims(value, [1, 0, 2])) if self._swaps else value, number)

    def _part(self, value: Any, number: int) -> Any:
        """Return one direction's part of a tensor."""
        if value is None:
            return None
        part = self._emit(relax.op.strided_slice(value, [0], [number], [number + 1]))
        return self._emit(relax.op.squeeze(part, [0]))

    def _swap_axes(self, value: Any) -> Any:
        return self._emit(relax.op.permute_dims(value, [1, 0, 2]))

    def _emit(self, value: Any) -> Any:
        return self._builder.emit(value)
