"""RKNN's profile: the table that ``eval_perf`` prints of each layer."""

from __future__ import annotations

import re

from pipeline.measure.vendor_profiles import LayerTime, VendorProfile

_TIME, _NAME = "Time(us)", "FullName"
_TOTAL = re.compile(r"Total Operator Elapsed Per Frame Time\(us\):\s*(\d+(?:\.\d+)?)")


def read(text: str) -> VendorProfile | None:
    """Return the times of each layer, by the columns of the table's head."""
    rows = [line.split() for line in text.splitlines()]
    head = next((row for row in rows if {"ID", _TIME, _NAME} <= set(row)), None)
    if head is None:
        return None
    # In a log, each line begins with its origin and time.
    start, time, name = map(head.index, ("ID", _TIME, _NAME))
    layers = tuple(
        # "Conv:NAME", the operator's kind in front.
        LayerTime((row[name].partition(":")[2],), float(row[time]) / 1e6)
        for row in rows
        if len(row) == len(head) and row[start].isdigit()
    )
    total = _TOTAL.search(text)
    return VendorProfile(float(total[1]) / 1e6 if total else sum(layer.seconds for layer in layers), layers)
