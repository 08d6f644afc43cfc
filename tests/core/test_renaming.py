"""Arguments that were renamed are refused, and the error says the new name."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import pipeline
from pipeline.simulation import simulate


@pytest.mark.parametrize("function", [pipeline.plan, simulate])
def test_an_argument_of_before_is_refused_with_its_new_name(function: Any) -> None:
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\) has no argument 'variance'; it is called 'cv'"):
        function(None, variance=0.1)
    assert "cv" in inspect.signature(function).parameters
    assert "cv : float" in (function.__doc__ or "")
