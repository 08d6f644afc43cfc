"""Distributions: packages as pip installs them, written into a folder of the search path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_distribution(
    folder: Path, name: str, module: str, entry_points: Mapping[str, Mapping[str, str]], version: str = "1.0"
) -> None:
    """Write a module of the distribution's name, and what says which entry points that has.

    Parameters
    ----------
    folder : Path
    name : str
    module : str
        Its text.
    entry_points : mapping of str to mapping of str to str
        For each group, names and what they stand for.
    version : str
    """
    (folder / f"{name}.py").write_text(module, encoding="utf-8")
    facts = folder / f"{name}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    sections = (
        "\n".join((f"[{group}]", *(f"{entry} = {value}" for entry, value in names.items())))
        for group, names in entry_points.items()
    )
    (facts / "entry_points.txt").write_text("\n\n".join(sections))
