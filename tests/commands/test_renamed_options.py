"""Options that have another name now are refused by the parser, which says the new one."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("name", ["plan", "simulate", "build", "bench", "tune"])
def test_an_option_of_before_is_refused_with_its_new_name(name: str, command: Any) -> None:
    result = command(name, "x", "--variance", "0.1")
    assert result.status == 2
    assert "error: --variance is called --time-variation" in result.err


def test_help_shows_the_new_name_only(command: Any) -> None:
    result = command("plan", "--help")
    assert "--time-variation CV" in result.out
    assert "--variance" not in result.out
