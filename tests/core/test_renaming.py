"""Arguments that were renamed are refused, and the error says the new name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import pipeline
from pipeline.core.renaming import accept_renamed
from pipeline.simulation import simulate


@pytest.mark.parametrize("function", [pipeline.plan, simulate])
def test_an_argument_of_before_is_refused_with_its_new_name(function: Any) -> None:
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\) has no argument 'variance'; it is called 'cv'"):
        function(None, variance=0.1)
    assert "cv" in inspect.signature(function).parameters
    assert "cv : float" in (function.__doc__ or "")


def test_an_old_name_that_is_still_taken_warns() -> None:
    @accept_renamed(told="on_trial")
    def tune(*, on_trial: int = 0) -> int:
        return on_trial

    with pytest.warns(DeprecationWarning, match=r"tune\(\) calls 'told' 'on_trial' now"):
        assert tune(told=3) == 3  # type: ignore[call-arg]
    assert tune(on_trial=4) == 4


@pytest.mark.parametrize(("verb", "known"), [(pipeline.plan, "stages"), (pipeline.build, "weights")])
def test_a_misspelt_argument_is_named_with_the_nearest(verb: Callable[..., Any], known: str) -> None:
    misspelt = known.replace("s", "z", 1)
    with pytest.raises(TypeError, match=rf"{verb.__name__}\(\) has no argument '{misspelt}'; did you mean '{known}'"):
        verb(None, **{misspelt: 1})
