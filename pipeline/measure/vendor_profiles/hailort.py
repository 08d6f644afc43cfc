"""Hailo's measurement: ``hailortcli run --csv`` or the text of ``hailortcli benchmark``."""

from __future__ import annotations

import csv
import re

from pipeline.measure.vendor_profiles import VendorProfile

_RATE = re.compile(r"\(streaming\)\s*=\s*(\d+(?:\.\d+)?)|\bFPS(?:\s*\(\w+\))?\s*[:=]\s*(\d+(?:\.\d+)?)")


def read(text: str) -> VendorProfile | None:
    """Return the time between two results; the chip has several frames inside."""
    head = text.partition("\n")[0].strip().split(",")
    if "net_name" in head and "fps" in head:
        row = next(csv.DictReader(text.splitlines()), {})
        rate = row.get("fps") or row.get("hw_only_fps") or ""
    else:
        rates = _RATE.findall(text)
        # Of a stream with transfers, where both were measured.
        rate = next((streaming for streaming, _ in rates if streaming), rates[-1][1] if rates else "")
    return VendorProfile(1 / frames_per_s) if (frames_per_s := float(rate or 0)) else None
