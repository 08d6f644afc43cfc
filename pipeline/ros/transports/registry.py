"""Transports by their names in a configuration."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pipeline.ros.transports.base import Transport, choose_domain

if TYPE_CHECKING:
    from pipeline.ros.configuration import Configuration

MODULES = {
    "dds": "pipeline.ros.transports.dds",
    "rclpy": "pipeline.ros.transports.rclpy",
    "zenoh": "pipeline.ros.transports.zenoh",
}
"""Modules by name, with an `open_transport` of domain and configuration; loaded when chosen."""


def connect(configuration: Configuration) -> Transport:
    """Return the configuration's transport, connected.

    Raises `InputError` if the domain is none, or cannot be joined; `MissingExtra` if its package is not installed.
    """
    module = importlib.import_module(MODULES[configuration.transport])
    transport: Transport = module.open_transport(choose_domain(configuration.domain), configuration)
    return transport
