"""Names that stand for others are followed to a tensor, or refused."""

from __future__ import annotations

import pytest

from pipeline.errors import ModelError
from pipeline.model.passes.naming import follow


def test_a_name_leads_to_a_tensor() -> None:
    aliases = {"a": "b", "b": "c"}
    assert [follow(name, aliases) for name in "abcd"] == ["c", "c", "c", "d"]


@pytest.mark.parametrize("aliases", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b", "b": "c", "c": "b"}])
def test_a_name_that_leads_back_to_itself_is_refused(aliases: dict[str, str]) -> None:
    with pytest.raises(ModelError, match=r"tensor '[abc]' is a copy of itself"):
        follow("a", aliases)
