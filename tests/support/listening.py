"""Listening sockets of this process, as the operating system knows them."""

from __future__ import annotations

import psutil


def listening_addresses(port: int) -> set[str]:
    """Return the addresses at which this process listens on a port."""
    connections = psutil.Process().net_connections("tcp")
    return {item.laddr.ip for item in connections if item.status == psutil.CONN_LISTEN and item.laddr.port == port}
