"""Boards: devices, links and memories, as values and as files."""
