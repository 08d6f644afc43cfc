"""Draws the graph of each example application as SVG, for docs/applications.md.

Run it as ``python tools/draw_applications.py [FOLDER]``; the same file gives the same picture.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from pipeline.app.app_file import read_app
from pipeline.app.application import App

ROOT = Path(__file__).parents[1]
EXAMPLES, PICTURES = ROOT / "examples" / "applications", ROOT / "docs" / "applications"
WIDTH, HEIGHT, ACROSS, DOWN = 176, 46, 44, 18
COLOURS = {"stream": "#7a6a4f", "model": "#2f6fb0", "track": "#3d8f5f", "trigger": "#b8521f", "sink": "#8a5fb0"}

Places = dict[str, tuple[int, int]]


def arrange(app: App) -> Places:
    """Return the left top of each stream and node: a column for each step from the streams."""
    levels = dict.fromkeys(app.streams, 0)
    for name in app.order:
        levels[name] = 1 + max(levels[read] for read in app.reads(name))
    columns = [[name for name in levels if levels[name] == level] for level in range(max(levels.values()) + 1)]
    tall = max(map(len, columns)) * (HEIGHT + DOWN)
    return {
        name: (1 + level * (WIDTH + ACROSS), round(tall * (row + 0.5) / len(column) - HEIGHT / 2))
        for level, column in enumerate(columns)
        for row, name in enumerate(column)
    }


def draw(app: App) -> str:
    """Return an application's graph as SVG."""
    places = arrange(app)
    edges = [(read, name) for name in app.order for read in app.reads(name)]
    floor = max(y for _, y in places.values()) + HEIGHT
    skips = [edge for edge in edges if places[edge[1]][0] - places[edge[0]][0] > WIDTH + ACROSS]
    width, height = max(x for x, _ in places.values()) + WIDTH + 1, floor + 12 * len(skips) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/><g font-family="sans-serif" font-size="12">',
    ]
    for start, end in edges:
        (x, y), (to, last) = places[start], places[end]
        x, y, to, last = x + WIDTH, y + HEIGHT // 2, to - 7, last + HEIGHT // 2
        if (start, end) in skips:
            # Below the others, so that no line seems to end at a box between.
            lane = floor + 12 * (1 + skips.index((start, end))) - 4
            path = f"M {x} {y + 10} h 12 V {lane} H {to - 14} V {last + 8} H {to}"
            last += 8
        else:
            path = f"M {x} {y} C {x + 22} {y} {to - 22} {last} {to} {last}"
        parts.append(f'<path d="{path}" fill="none" stroke="#6b7280" stroke-width="1.5"/>')
        parts.append(f'<path d="M {to + 6} {last} l -9 -5 v 10 z" fill="#6b7280"/>')
    for name, (x, y) in places.items():
        kind, fact = app.describe(name)
        node = app.nodes.get(name)
        fact = fact.partition(":")[0] if kind == "stream" else fact.split("/")[-1]
        text = clip(f"{kind} {fact}{' on crops' if getattr(node, 'for_each', '') else ''}")
        parts.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff" '
            f'stroke="{COLOURS.get(kind, "#22262b")}" stroke-width="2"/>'
            f'<text x="{x + 9}" y="{y + 19}" font-weight="bold" fill="#22262b">{escape(name)}</text>'
            f'<text x="{x + 9}" y="{y + 36}" font-size="11" fill="#6b7280">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</g></svg>", ""])


def clip(text: str, most: int = 27) -> str:
    """Return a text that fits into a box."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def main(folder: Path) -> None:
    """Write the pictures of all examples."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(EXAMPLES.glob("*.toml")):
        (folder / f"{path.stem}.svg").write_text(draw(read_app(path)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else PICTURES)
