"""OpenShapes: which sizes inputs have, and what of a padded result counts."""

from __future__ import annotations

import pytest

from pipeline.core.shapes import OpenShapes, SizeRange, extent_multiples, sizes_in
from pipeline.errors import InputError, ModelError

IMAGES = OpenShapes({"data": ("N", 3, "H", "H"), "mask": ("N", 4)})


def test_shapes_and_sizes_say_the_same() -> None:
    size = {"N": 2, "H": 8}
    assert IMAGES.names == ("N", "H")
    assert IMAGES.at(size) == {"data": (2, 3, 8, 8), "mask": (2, 4)}
    assert IMAGES.size(IMAGES.at(size)) == size


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"data": (2, 3, 8), "mask": (2, 4)}, r"wrong rank for the input 'data': \[2, 3, 8\] given, \[N, 3, H, H\]"),
        ({"data": (2, 1, 8, 8), "mask": (2, 4)}, r"wrong shape for the input 'data': \[2, 1, 8, 8\] given"),
        ({"data": (2, 3, 8, 9), "mask": (2, 4)}, r"\[2, 3, 8, 9\] given, \[N, 3, H, H\] expected with N=2, H=8"),
        ({"data": (2, 3, 8, 8), "mask": (3, 4)}, r"'mask': \[3, 4\] given, \[N, 4\] expected with N=2"),
    ],
)
def test_shapes_at_no_size(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        IMAGES.size(shapes)


def test_extents_as_multiples() -> None:
    size, other_size = {"N": 4, "H": 8}, {"N": 3, "H": 7}
    assert extent_multiples((4, 10), (3, 10), size, other_size) == (("N", 1), None)
    assert extent_multiples((8, 16), (6, 14), size, other_size) == (("N", 2), ("H", 2))
    assert extent_multiples((4,), (4,), size, other_size) == (None,)
    assert extent_multiples((5,), (4,), size, other_size) is None  # N + 1
    assert (
        extent_multiples((4,), (3,), {"H": 8}, {"H": 6}) is None
    )  # H / 2: of a padded frame, part of it is the padding's


def test_ranges_are_all_sizes_in_them() -> None:
    assert sizes_in({"N": 4}) == [{"N": 4}]
    assert sizes_in({"N": "1..3"}) == sizes_in({"N": range(1, 4)}) == [{"N": 1}, {"N": 2}, {"N": 3}]
    assert sizes_in({"H": "8..9", "W": 4}) == [{"H": 8, "W": 4}, {"H": 9, "W": 4}]


@pytest.mark.parametrize(
    ("size_range", "message"),
    [
        ({"N": "3..1"}, r"the range N=3\.\.1 is empty; give the smaller extent first"),
        ({"N": range(0)}, "is empty"),
        ({"N": "1.5"}, "the extent N is '1.5'; it must be a number, or a range such as '1..32'"),
        ({"N": "9" * 5000 + "..1"}, "it must be a number"),
        ({"H": "1..100", "W": "1..100"}, "are 10000 sizes; name at most 256, or build for any size"),
    ],
)
def test_wrong_ranges_are_refused(size_range: SizeRange, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        sizes_in(size_range)
