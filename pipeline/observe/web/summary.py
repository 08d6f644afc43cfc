"""Summary of an array for a page: kind, range, picture, top scores."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from pipeline.observe.web.picture import MOST, picture

BEST = 5
"""Number of listed scores."""

_LOOKED_AT = 10_000
"""Values behind an array's numbers: all of a large one would take the interpreter from the workers for long."""

_MOST_SCORES = 100_000
"""Longer rows are hardly scores of classes, and take long to sort."""


def summary(name: str, array: np.ndarray, image: np.ndarray | None = None) -> dict[str, Any]:
    """Describe an array in plain values.

    Its picture is `image`, if that is given, else the array itself if it looks like one.  Its ``low``, ``high`` and
    ``mean`` rest on at most some 10,000 of its values, evenly spread; ``best`` lists the largest scores of its first
    row, and ``rows`` the index of the largest one in each of the first rows.
    """
    description: dict[str, Any] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    if array.dtype.kind not in "buif" or not array.size:
        return description
    # Every n-th value of the whole array, since its beginning alone may be a border.
    values = array.reshape(-1)[:: max(1, array.size // _LOOKED_AT)]
    description |= {
        "low": float(values.min()),
        "high": float(values.max()),
        "mean": float(values.mean(dtype=np.float64)),
    }
    if (png := picture(array if image is None else image)) is not None:
        description["picture"] = data_url("png", png)
    elif array.ndim in (1, 2) and 1 < array.shape[-1] <= _MOST_SCORES:
        description |= _scores(np.atleast_2d(array)[:MOST])
    return description


def data_url(kind: str, data: bytes) -> str:
    """Return a picture as an address that has it inside."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _scores(rows: np.ndarray) -> dict[str, Any]:
    # Of the first row alone: a batch would fill the page.
    order = np.argsort(rows[0])[: -BEST - 1 : -1]
    return {"best": [[int(index), float(rows[0, index])] for index in order], "rows": rows.argmax(axis=1).tolist()}
