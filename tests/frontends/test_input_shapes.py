"""What becomes of extents that a model and its caller leave open, whatever the format."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.errors import ModelError
from pipeline.frontends.input_shapes import resolve


def test_a_batch_becomes_one_wherever_its_name_stands() -> None:
    shapes = resolve("m", {"x": ("batch", 3), "state": (2, "batch", 128), "both": ("batch * 2", 4)}, {})
    assert shapes.shapes == {"x": (1, 3), "state": (2, 1, 128), "both": (2, 4)}
    assert shapes.notes == ("m leaves the batch open, which becomes 1; another one is given by --shape batch=8",)


def test_what_a_shape_says_of_a_name_holds_for_other_inputs() -> None:
    declared = {"x": ("batch", "height"), "mask": ("batch", "height + 1"), "scale": ()}
    shapes = resolve("m", declared, {"x": [4, 7]})
    assert (shapes.shapes, shapes.notes) == ({"x": (4, 7), "mask": (4, 8), "scale": ()}, ())


def test_names_of_the_caller_stay() -> None:
    assert resolve("m", {"x": ("batch", 3)}, {"x": ["N", 3]}).shapes == {"x": ("N", 3)}


@pytest.mark.parametrize(
    ("declared", "options"),
    [
        ({"x": (None, 3, None, None)}, "--shape x=1,3,224,224"),
        ({"x": ("b", "h", "w", 3)}, "--shape h=224 --shape w=224"),
        ({"ids": ("b", "length"), "mask": ("b", "length")}, "--shape length=16"),
        # A picture has one, three or four colours, in front or behind; sequences have other extents.
        ({"x": ("b", 1, None, None)}, "--shape x=1,1,224,224"),
        ({"x": (None, None, None, 1)}, "--shape x=1,224,224,1"),
        ({"x": (None, 4, None, None)}, "--shape x=1,4,224,224"),
        ({"x": (1, 2, None, None)}, "--shape x=1,2,16,16"),
        ({"x": (1, None, None, 3, 3)}, "--shape x=1,16,16,3,3"),
        ({"x": (1, "a b")}, "--shape x=1,16"),
        ({"a b": (1, None)}, "--shape 'a b=1,16'"),
        ({"x": (1, "y"), "y": (1, "n")}, "--shape x=1,16 --shape n=16"),
        ({"x": None}, "--shape x=1,3,224,224"),
    ],
    ids=str,
)
def test_the_options_of_a_message_work(declared: dict[str, Any], options: str) -> None:
    with pytest.raises(ModelError, match="give it fixed extents, such as") as failure:
        resolve("m", declared, {})
    assert str(failure.value).endswith(options)
    assert "-1" not in options
    shapes: dict[str, Any] = {}
    for option in options.split("--shape ")[1:]:
        name, _, extents = option.strip(" '").rpartition("=")
        shapes[name] = [int(extent) for extent in extents.split(",")]
    assert resolve("m", declared, shapes).shapes


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": 3}, r"input 'x' is given the number 3; give it a shape, such as \[3\]"),
        ({"h": [1, 2]}, "has no input 'h'; it has x and the extents h"),
        ({"x": [1]}, r"input 'x' has 2 dimensions, but the given shape \[1\] has 1"),
    ],
    ids=str,
)
def test_values_that_do_not_fit(shapes: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        resolve("m", {"x": (3, "h")}, shapes)
