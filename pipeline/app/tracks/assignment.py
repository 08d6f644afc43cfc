"""Assignment: pairs of rows and columns with the largest sum."""

from __future__ import annotations

import numpy as np


def assign(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the pairs that have the largest sum of finite scores.

    Rows are in ascending order, as many as the shorter side has. Shortest augmenting paths, as Jonker and Volgenant
    (1987) describe them; each step is one pass over a row.
    """
    if scores.shape[0] > scores.shape[1]:
        columns, rows = assign(scores.T)
        order = np.argsort(rows)
        return rows[order], columns[order]
    costs = -scores.astype(np.float64)
    row_count, column_count = costs.shape
    row_prices, column_prices = np.zeros(row_count), np.zeros(column_count)
    row_of = np.full(column_count, -1)
    for start in range(row_count):
        shortest, came_from = np.full(column_count, np.inf), np.full(column_count, -1)
        visited = np.zeros(column_count, bool)
        row, column, distance = start, -1, 0.0
        tree_rows = []
        # 1. Grow the tree of shortest paths until it reaches a free column.
        while True:
            tree_rows.append((row, distance))
            paths = distance + costs[row] - row_prices[row] - column_prices
            is_better = ~visited & (paths < shortest)
            shortest[is_better], came_from[is_better] = paths[is_better], row
            column = int(np.argmin(np.where(visited, np.inf, shortest)))
            distance = float(shortest[column])
            visited[column] = True
            if row_of[column] < 0:
                break
            row = int(row_of[column])
        # 2. Raise the prices of what the tree holds.
        for tree_row, at in tree_rows:
            row_prices[tree_row] += distance - at
        column_prices[visited] -= distance - shortest[visited]
        # 3. Exchange the pairs along the path.
        column_of = {int(taken): number for number, taken in enumerate(row_of) if taken >= 0}
        while True:
            row = int(came_from[column])
            row_of[column] = row
            if row == start:
                break
            column = column_of[row]
    columns = np.flatnonzero(row_of >= 0)
    order = np.argsort(row_of[columns])
    return row_of[columns][order], columns[order]


def overlaps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the intersection over union of boxes [N, 4] and [M, 4]: float64 [N, M]."""
    left_top = np.maximum(first[:, None, :2], second[None, :, :2])
    right_bottom = np.minimum(first[:, None, 2:], second[None, :, 2:])
    common = (right_bottom - left_top).clip(0).prod(-1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).clip(0).prod(-1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None] - common
    shares: np.ndarray = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares
