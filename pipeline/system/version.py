"""The version of this project; both distributions have it."""

VERSION = "0.1.0"
