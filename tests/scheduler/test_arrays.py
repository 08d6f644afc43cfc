"""Tensors of other libraries enter where they can be read, and are refused by name where they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import InputError
from pipeline.scheduler import Pipeline
from pipeline.scheduler.inputs import read_array

X = np.arange(4, dtype=np.float32)


class OnlyDlpack:
    """As of libraries that know nothing of NumPy."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class Far(OnlyDlpack):
    """On a device that NumPy does not reach."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("a tensor of cuda:0 cannot go to the CPU")


class Broken:
    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise ZeroDivisionError("nothing here")


def test_what_has_only_dlpack_is_an_input(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(1)) as running:
        np.testing.assert_array_equal(running.submit(OnlyDlpack(X)).result(30), X)
        np.testing.assert_array_equal(running.submit({"x": OnlyDlpack(X)}).result(30), X)


@pytest.mark.parametrize("value", [Far(X), Broken(), [[1.0], [1.0, 2.0]]], ids=["far", "broken", "ragged"])
def test_what_is_no_array_here_is_refused_by_name(chain: Callable[..., Plan], value: Any) -> None:
    with Pipeline(chain(1)) as running:
        with pytest.raises(InputError, match=r"cannot read the input 'x' as an array: a .* is given: "):
            running.submit(value)
        assert running.statistics().submitted == 0
        np.testing.assert_array_equal(running.submit(X).result(30), X)


def test_tensors_with_a_gradient_are_inputs(chain: Callable[..., Plan]) -> None:
    torch: Any = pytest.importorskip("torch")
    with Pipeline(chain(1)) as running:
        for tensor in (torch.tensor(X), torch.tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True) * 1):
            np.testing.assert_array_equal(running.submit(tensor).result(30), X)


@pytest.mark.parametrize("make", ["sparse", "meta", "list"])
def test_tensors_without_bytes_here_are_refused(chain: Callable[..., Plan], make: str) -> None:
    torch: Any = pytest.importorskip("torch")
    product: Any = {
        "sparse": torch.tensor(X).to_sparse(),
        "meta": torch.zeros(4, device="meta"),
        "list": [torch.zeros(1, requires_grad=True)] * 4,
    }[make]
    with Pipeline(chain(1)) as running, pytest.raises(InputError, match="cannot read the input 'x' as an array"):
        running.submit(product)


def test_bfloat16_is_read_where_numpy_knows_it() -> None:
    torch: Any = pytest.importorskip("torch")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = read_array("input", "x", torch.tensor([1.5, -2.0], dtype=torch.bfloat16, requires_grad=True))
    assert array.dtype == ml_dtypes.bfloat16
    assert array.astype(np.float32).tolist() == [1.5, -2.0]


def test_bfloat16_for_an_input_of_float32_is_refused(chain: Callable[..., Plan]) -> None:
    torch: Any = pytest.importorskip("torch")
    with Pipeline(chain(1)) as running, pytest.raises(InputError, match=r"the input 'x'.*bfloat16"):
        running.submit(torch.tensor(X, dtype=torch.bfloat16))


def test_arrays_are_taken_as_they_are() -> None:
    assert read_array("input", "x", X) is X
    assert read_array("input", "x", [1, 2]).tolist() == [1, 2]
