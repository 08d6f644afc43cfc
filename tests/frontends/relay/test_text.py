"""Relay text: the parts of the grammar become the right tree, or the right result."""

from __future__ import annotations

import base64
import json
import struct

import numpy as np
import pytest

from pipeline.frontends.relay import parser
from pipeline.frontends.relay.scalars import number, scalar, string
from pipeline.frontends.relay.syntax import Call, LetBlock, Literal, OtherType, TensorType
from tests.support.relay_programs import HEADER, import_program, random, result, results

X = random(2, 3)


def body(text: str) -> object:
    return parser.parse(f"{HEADER}def @main(%x: Tensor[(2, 3), float32]) {{ {text} }}", "t").functions["main"].body


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("5", 5, "int32"),
        ("5f", 5, "float32"),
        ("1e-05f", 1e-5, "float32"),
        ("2.5f64", 2.5, "float64"),
        ("1.5h", 1.5, "float16"),
        ("3i64", 3, "int64"),
        ("7u8", 7, "uint8"),
        ("1.5", 1.5, "float32"),
        ("30522 /* ty=int64 */", 30522, "int64"),
        ("7 /* ty=int8 span=a.b:1:2 */", 7, "int8"),
        ("7 /* the seventh */", 7, "int32"),
        ("-2", -2, "int32"),
        ("-2f", -2, "float32"),
        ("True", True, "bool"),
        ("nanf", np.nan, "float32"),
        ("inff", np.inf, "float32"),
    ],
)
def test_scalars(text: str, value: float, dtype: str) -> None:
    literal = body(text)
    assert isinstance(literal, Literal)
    assert str(literal.value.dtype) == dtype
    assert literal.value.shape == ()
    np.testing.assert_allclose(literal.value.astype("float64"), value, rtol=1e-6)


@pytest.mark.parametrize("text", ["1i3", "1" * 5000])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"no dtype|digits"):
        number(text)


@pytest.mark.parametrize(("value", "dtype"), [(300, "int8"), (-1, "uint8"), (1, "int4")])
def test_scalars_without_room(value: int, dtype: str) -> None:
    with pytest.raises(ValueError, match=r"does not fit|no dtype|out of bounds"):
        scalar(value, dtype)


def test_strings() -> None:
    assert string(r'"a\"b\\c\nd"') == 'a"b\\c\nd'


def test_attributes_of_all_kinds() -> None:
    text = 'f(%x, a=1, b=-2, c=0.5f, d="t", e=None, f=True, g=[1, -2], h=[[0, 0], [1, 1]], i=(1, 2), j={"k": 1}, l=[])'
    call = body(text)
    assert isinstance(call, Call)
    assert call.attributes == {
        "a": 1, "b": -2, "c": 0.5, "d": "t", "e": None, "f": True, "g": [1, -2], "h": [[0, 0], [1, 1]], "i": [1, 2],
        "j": {"k": 1}, "l": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("Tensor[(1, 3), float32]", TensorType((1, 3), "float32")),
        ("Tensor[(), int64]", TensorType((), "int64")),
        ("Tensor[(?, 3), float32]", TensorType((None, 3), "float32")),
        ("Tensor[(5,), bool]", TensorType((5,), "bool")),
        ("float32", TensorType((), "float32")),
        ("(int8, Tensor[(2), int8])", OtherType("a tuple")),
        ("()", OtherType("a tuple")),
        ("fn (float32, int8) -> float32", OtherType("a function")),
        ("List[float32]", OtherType("a List")),
        ("?", OtherType("a type that is left open")),
    ],
)
def test_types(text: str, reference: object) -> None:
    program = parser.parse(f"{HEADER}def @main(%x: {text}) {{ %x }}", "t")
    assert program.functions["main"].parameters[0].type == reference


def test_comments_stand_anywhere() -> None:
    text = """(%x: /* a */ Tensor[(2, 3), /* ty=Tensor[(9), int8] span=a.b:1 */ float32]) { // b
      /* %0 = broken( */ %0 = negative(%x) /* ty=Tensor[(2, 3), float32] */; // }
      negative(%0) /* " */
    } // c"""
    np.testing.assert_array_equal(result(text, {"x": X}), X)


def test_let_tuples_and_projections() -> None:
    text = """(%x: Tensor[(2, 3), float32]) {
      let %a: Tensor[(2, 3), float32] = negative(%x);
      let %pair = (%a, (%x, %a));
      %0 = %pair.1;
      %1 = add(%0.0, %pair.1.1);
      (%1, (%pair.0, add(%pair.1.0, %x)), (%a,).0)
    }"""
    output = results(text, {"x": X})
    for item, reference in zip(output, [0 * X, -X, 2 * X, -X], strict=True):
        np.testing.assert_array_equal(item, reference)


def test_a_block_in_braces_or_parentheses_is_a_value() -> None:
    text = """(%x: Tensor[(2, 3), float32]) {
      let %a = { let %b = negative(%x); %0 = add(%b, %b); %0 };
      add(%a, (let %c = negative(%a); negative(%c)))
    }"""
    np.testing.assert_array_equal(result(text, {"x": X}), -4 * X)


def test_operators_that_people_write() -> None:
    text = "(%x: Tensor[(2, 3), float32]) { let %y = %x * 2f + -%x / 4f - 1f; where(%y >= %x == True, %y, %x) }"
    reference = X * 2 - X / 4 - 1
    np.testing.assert_allclose(result(text, {"x": X}), np.where(reference >= X, reference, X), rtol=1e-6)


def test_functions_are_inlined() -> None:
    text = f"""{HEADER}
    def @twice(%x: Tensor[(2, 3), float32], Inline=1) -> Tensor[(2, 3), float32] {{ add(%x, %x) }}
    def @main(%x: Tensor[(2, 3), float32]) {{
      let %bias = 1f;
      let %f = fn (%y: Tensor[(2, 3), float32], Primitive=1, hash="12ab") {{ %0 = add(%y, %bias); @twice(%0) }};
      %0 = %f(%x);
      %1 = fn (%p) {{ negative(%p) }};
      %1(@twice(%0))
    }}"""
    np.testing.assert_allclose(result(text, {"x": X}), -4 * (X + 1), rtol=1e-6)


def test_a_single_function_is_main() -> None:
    np.testing.assert_array_equal(result(f"{HEADER}fn (%x: Tensor[(2, 3), float32]) {{ negative(%x) }}", {"x": X}), -X)


@pytest.mark.parametrize(("condition", "sign"), [("True", 1), ("less(2f, 1f)", -1), ("%flag", 1)])
def test_the_branch_of_a_constant_condition(condition: str, sign: int) -> None:
    text = f"""(%x: Tensor[(2, 3), float32], %flag: bool) {{
      if ({condition}) {{ %0 = negative(%x); negative(%0) }} else {{ let %a = %x; negative(%a) }}
    }}"""
    np.testing.assert_array_equal(result(text, {"x": X}, {"flag": np.array(True)}), sign * X)


def test_else_if() -> None:
    text = "(%x: Tensor[(2, 3), float32]) { if (False) { %x } else if (True) { negative(%x) } else { %x } }"
    np.testing.assert_array_equal(result(text, {"x": X}), -X)


def encode(array: np.ndarray) -> str:
    """Return an array as TVM writes it."""
    code = {"i": 0, "u": 1, "f": 2}[array.dtype.kind]
    head = struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, array.ndim, code, array.dtype.itemsize * 8, 1)
    shape = struct.pack(f"<{array.ndim}qq", *array.shape, array.nbytes)
    return base64.b64encode(head + shape + array.tobytes()).decode()


def test_constants_in_the_metadata() -> None:
    arrays = [random(2, 3, seed=1), random(3, seed=2)]
    nodes = [
        {"type_key": ""},
        {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
        {"type_key": "Array", "data": [3, 4]},
        *({"type_key": "relay.Constant", "attrs": {"data": str(number)}} for number in range(2)),
    ]
    metadata = json.dumps({"root": 1, "nodes": nodes, "b64ndarrays": [encode(each) for each in arrays]})
    text = f"""(%x: Tensor[(2, 3), float32]) {{
      %0 = add(%x, meta[relay.Constant][0] /* ty=Tensor[(2, 3), float32] */);
      multiply(%0, meta[relay.Constant][1])
    }}
    #[metadata]
    {metadata}"""
    np.testing.assert_allclose(result(text, {"x": X}), (X + arrays[0]) * arrays[1], rtol=1e-6)


def test_names_with_dots_and_slashes() -> None:
    text = """(%input.1: Tensor[(2, 3), float32], %model/w::0: Tensor[(2, 3), float32]) {
      let %layer.0 = (%input.1, %model/w::0);
      add(%layer.0.0, %layer.0.1)
    }"""
    np.testing.assert_array_equal(result(text, {"input.1": X, "model/w::0": X}), 2 * X)


def test_names_become_those_of_the_graph() -> None:
    text = """(%x: Tensor[(2, 3), float32]) {
      let %first = negative(%x);
      %0 = add(%first, %x);
      %1 = split(%0, indices_or_sections=3, axis=1);
      %2 = %1.0;
      let %same = %2;
      (%2, multiply(%1.1, %same), %x, %2)
    }"""
    output = import_program(text)
    assert set(output.names.values()) == {"x", "first", "%0", "%2", "output1"}
    assert output.operators == {"%2": "%1"}
    assert output.aliases == {"same": "%2"}
    assert output.outputs == ("%2", "output1", "output2", "output3")


def test_names_inside_functions_tell_the_call() -> None:
    text = f"""{HEADER}
    def @f(%x: Tensor[(2, 3), float32]) {{ let %a = negative(%x); %0 = add(%a, %x); exp(%0) }}
    def @main(%x: Tensor[(2, 3), float32]) {{ %0 = @f(%x); let %y = @f(%0); tanh(%y) }}"""
    assert set(import_program(text).names.values()) == {"x", "f.a", "f.%0", "%0", "f2.a", "f2.%0", "y", "output"}


def test_a_long_program_is_read_without_deep_recursion() -> None:
    lines = ["%0 = negative(%x);", *(f"%{number} = add(%{number - 1}, %x);" for number in range(1, 20_000))]
    block = body("\n".join([*lines, "%19999"]))
    assert isinstance(block, LetBlock)
    assert len(block.bindings) == 20_000


@pytest.mark.slow
def test_a_long_program_is_converted() -> None:
    lines = [f"let %v{number} = add(%v{number - 1}, %x);" for number in range(1, 10_000)]
    text = "(%x: Tensor[(2, 3), float32]) { let %v0 = negative(%x);" + "\n".join([*lines, "%v9999 }"])
    assert len(import_program(text).module["main"].body.blocks[0].bindings) == 10_000


def test_comments_stand_in_comments() -> None:
    text = "(%x: Tensor[(2,), float32]) { /* a /* b */ c /**/ */ negative(%x /* ty=Tensor[(2,), float32] /* n */ */) }"
    np.testing.assert_array_equal(result(text, {"x": np.array([1, -2], np.float32)}), [-1, 2])
