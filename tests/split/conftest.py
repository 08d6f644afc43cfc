"""A small graph to plan."""

from __future__ import annotations

import pytest

from pipeline.split.graph import Graph
from tests.support.planning import chain_graph


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Six operators that do not fuse, all alike."""
    return chain_graph(tmp_path_factory.mktemp("chain"))
