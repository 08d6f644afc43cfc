"""Errors of a program name its file, line and column, and the expectation there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

import pipeline
from pipeline.errors import ModelError
from pipeline.frontends.relay.convert import convert
from pipeline.frontends.relay.parser import parse
from tests.support.relay_programs import HEADER, import_program

ARGUMENT = "%x: Tensor[(2, 3), float32]"


def read_refusal(text: str, **constants: np.ndarray) -> str:
    with pytest.raises(ModelError) as failure:
        import_program(text, constants)
    assert failure.value.exit_status == 2
    assert len(str(failure.value).splitlines()) == 1
    return str(failure.value)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("def @main(%x Tensor[(2), float32]) { %x }", 2, 14, "expected ',' or ')', found 'Tensor'"),
        ("def @main(%x: Tensor[2, float32]) { %x }", 2, 22, "expected '(', found '2'"),
        ("def @main(%x: Tensor[(2.5), float32]) { %x }", 2, 23, "expected an extent, such as 224"),
        (f"def @main({ARGUMENT}) {{ negative(%x }}", 2, 54, "expected ',' or ')', found '}'"),
        (f"def @main({ARGUMENT}) {{\n  %0 = negative(%x)\n  %0\n}}", 4, 3, "expected ';', found '%0'"),
        (f"def @main({ARGUMENT}) {{\n  %1 = negative(%0);\n  %1\n}}", 3, 17, "'%0' is used, but not defined before"),
        (f"def @main({ARGUMENT}) {{ let x = %x; x }}", 2, 46, "expected a variable, such as '%x', found 'x'"),
        (f"def @main({ARGUMENT}) {{ let %y: = %x; %y }}", 2, 50, "expected a type, such as Tensor[(1, 3), float32]"),
        (f"def @main({ARGUMENT}) {{ add(%x, ) + }}", 2, 54, "expected an expression"),
        (f"def @main({ARGUMENT}) {{ clip(%x, a_min=) }}", 2, 57, "expected a number, a string, None"),
        (f"def @main({ARGUMENT}) {{ meta[relay.Constant][0] }}", 2, 42, "show_meta_data=True"),
        (f"def @main({ARGUMENT}) {{ %x }} def @main() {{ 1 }}", 2, 47, "two functions '@main'"),
        (f"def @main({ARGUMENT}) {{ %x", 2, 44, "expected '}', found the end"),
        (f"def @main({ARGUMENT}) {{ match (%x) {{ }} }}", 2, 42, "'match' is not supported"),
        (f'def @main({ARGUMENT}) {{ f(%x, a="b) }}', 2, 50, "this string has no end"),
        (f"def @main({ARGUMENT}) {{ /* %x }}", 2, 42, "this comment has no end"),
        (f"def @main({ARGUMENT}) {{ %x $ }}", 2, 45, "'$' begins nothing that Relay text has"),
        ("type List[A] { Nil }", 2, 1, "algebraic data types are not supported"),
        ("", 2, 1, "expected 'def', found the end"),
    ],
)
def test_text_that_is_no_program(text: str, line: int, column: int, message: str) -> None:
    assert read_refusal(HEADER + text).startswith(f"'test.relay', line {line}, column {column}: ")
    assert message in read_refusal(HEADER + text)


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("%0 = negative(%x);\n  nn.dense(%0)", "line 3, column 3", "nn.dense: missing a required argument: 'weight'"),
        ("add(%x, 1)", "line 2, column 42", "add: Binary operators must have the same datatype"),
        ("nn.relu((%x, %x))", "line 2, column 42", "nn.relu: a tensor is expected, but this is a tuple"),
        ("concatenate(%x)", "line 2, column 42", "concatenate: a tuple of tensors is expected"),
        ("%x.0", "line 2, column 42", "field 0 is taken of what is no tuple"),
        ("(%x, %x).2", "line 2, column 42", "field 2 is taken of a tuple of 2 fields"),
        ("reshape(%x, newshape=[5])", "line 2, column 42", "the shape (2, 3) does not become [5]"),
        ("clip(%x, a_min=0f)", "line 2, column 42", "the attribute 'a_max' is missing"),
        ("nn.softmax(%x, axis=2)", "line 2, column 42", "there is no axis 2"),
        ("nn.softmax(%x, axes=1)", "line 2, column 42", "the attribute 'axes' is not supported"),
        ('cast(%x, dtype="float8")', "line 2, column 42", "dtype 'float8' in 'dtype' is not supported"),
        ("take(%x, %x, axis=0, mode=\"raise\")", "line 2, column 42", "mode='raise' is not supported"),
        ("if (less(sum(%x), 0f)) { %x } else { %x }", "line 2, column 42", "this 'if' depends on an input"),
        ("@other(%x)", "line 2, column 42", "there is no function '@other'"),
        ("@main(%x)", "line 2, column 42", "functions call each other more than"),
        ("@main()", "line 2, column 42", "the function takes 1 arguments, but 0 are given"),
        ("fn (%y) { %y }", "line 2, column 1", "'@main' returns a function"),
        ("()", "line 2, column 1", "'@main' returns an empty tuple, so that there is nothing to compute"),
        ("nn.relu", "line 2, column 42", "the operator nn.relu stands without operands"),
        ("%x(%x)", "line 2, column 42", "what is called here is no function"),
        ("strided_slice(%x, begin=[5], end=[6])", "line 2, column 42", "which is not supported"),
        ("zeros(shape=[1000000, 1000000])", "line 2, column 42", "a constant of the shape (1000000, 1000000)"),
        ("broadcast_to(%x, shape=[1000000, 1000, 2, 3])", "line 2, column 42", "its result would have the shape"),
        ("gather(arange(0, 3, 1), full(7, shape=[2], dtype=\"int64\"), axis=0)", "line 2, column 42", "is outside"),
        ("divide(full(7, shape=[2], dtype=\"int32\"), 0)", "line 2, column 42", "divided by zero"),
        ("nn.adaptive_max_pool1d(expand_dims(%x, axis=0), output_size=[9999])", "line 2, column 42", "256 per axis"),
        ("split(%x, indices_or_sections=1000000000)", "line 2, column 42", "does not divide into 1000000000 parts"),
        ("one_hot(%x, 1f, 0f, depth=1000000000)", "line 2, column 42", "depth=1000000000"),
        ("arange(0, 1000000000, 1)", "line 2, column 42", "a range from 0 to 1e+09 by 1 is not supported"),
        ("nn.conv2d(%x, %x)", "line 2, column 42", "expected 4 axes, found the shape (2, 3)"),
    ],
)  # fmt: skip
def test_programs_that_are_not_consistent(text: str, position: str, message: str) -> None:
    message_text = read_refusal(f"({ARGUMENT}) {{ {text} }}")
    assert message_text.startswith(f"'test.relay', {position}: ")
    assert message in message_text


def test_all_unsupported_operators_are_named() -> None:
    text = f"""({ARGUMENT}) {{
  %0 = nn.strange(%x);
  %1 = image.odd(%0);
  nn.strange(add(%1, @helper(%x)))
}}
def @helper(%x) {{ other(%x) }}
def @unused(%x) {{ never(%x) }}"""
    assert read_refusal(text) == (
        "'test.relay' uses operators that are not supported: nn.strange (line 3, column 8, and 1 more); "
        "image.odd (line 4, column 8); other (line 7, column 19)"
    )


@pytest.mark.parametrize("header", ["v0.0.4\n", '#[version = "0.0.4"]\n', '#[version = "1.0"]\n'])
def test_another_version(tmp_path: Path, header: str) -> None:
    (tmp_path / "old.relay").write_text(f"{header}def @main({ARGUMENT}) {{ %x }}")
    with pytest.raises(ModelError, match=r"line 1, column 1: this is Relay text of version .*; supported is 0\.0\.5"):
        pipeline.read(tmp_path / "old.relay")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(%x: (float32, float32)) { %x }", "'x' has a tuple; expected a tensor"),
        ("(%x) { %x }", "'x' has no type; expected a tensor"),
        ("(%x: Tensor[(2), custom]) { %x }", "'x' has the dtype 'custom', which is not supported"),
        ("(%x: Tensor[(3, ?), float32]) { %x }", "input 'x' has the shape [3, '?']; give it fixed extents, such as"),
        ("(%x: Tensor[(2), int8], %x: Tensor[(2), int8]) { %x }", "two parameters of '@main' have the same name"),
    ],
)
def test_inputs_that_are_no_tensors(text: str, message: str) -> None:
    assert message in read_refusal(text)


def test_no_main() -> None:
    assert read_refusal(f"{HEADER}def @f({ARGUMENT}) {{ %x }}") == "'test.relay' has no function '@main'; it has f"


def test_open_extents_are_given(tmp_path: Path) -> None:
    (tmp_path / "m.relay").write_text(f"{HEADER}def @main(%x: Tensor[(?, 3), float32]) {{ negative(%x) }}")
    graph = pipeline.read(tmp_path / "m.relay", {"x": [5, 3]})
    assert graph.outputs[0].shape == (5, 3)
    for shape in ([5, 4], [5], [0, 3]):
        with pytest.raises(ModelError, match="input 'x' has"):
            pipeline.read(tmp_path / "m.relay", {"x": shape})
    with pytest.raises(ModelError, match="has no input 'y'; it has x"):
        pipeline.read(tmp_path / "m.relay", {"y": [5, 3]})


@pytest.mark.parametrize(
    "nest",
    [
        lambda depth: "(" * depth + "%x" + ")" * depth,
        lambda depth: "negative(" * depth + "%x" + ")" * depth,
        lambda depth: "{" * depth + "%x" + "}" * depth,
        lambda depth: "let %a = " * depth + "%x; %a" * depth,
        lambda depth: "-" * depth + "%x",
        lambda depth: "%x" + " + %x" * depth,
        lambda depth: "(%x,)" + ".0" * depth,
        lambda depth: "%x" + "()" * depth,
        lambda depth: "f(%x, a=" + "[" * depth + "]" * depth + ")",
        lambda depth: "if (True) { %x } else " * depth + "{ %x }",
        lambda depth: "fn () { " * depth + "%x" + "}" * depth,
        lambda depth: "fn (%a: " + "(" * depth + ")" * depth + ") { %x }",
    ],
)
def test_deep_nests_are_refused(nest: object) -> None:
    for depth in (60, 5_000):
        message = read_refusal(f"({ARGUMENT}) {{ {nest(depth)} }}")  # type: ignore[operator]
        assert "deep" in message or "in a row" in message or "no tuple" in message or "is no function" in message


def test_functions_that_unfold_without_bound_are_refused() -> None:
    chain = "\n".join(f"def @f{number}(%x) {{ @f{number + 1}(@f{number + 1}(%x)) }}" for number in range(25))
    text = f"{HEADER}{chain}\ndef @f25(%x) {{ negative(%x) }}\ndef @main({ARGUMENT}) {{ @f0(%x) }}"
    inputs = {"x": relax.Var("x", relax.TensorType((2, 3), "float32"))}
    with pytest.raises(ModelError, match="unfolds to more than 500 operators"):
        convert(parse(text, "m"), inputs, {}, "m", most_operators=500)
