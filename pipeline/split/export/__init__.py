"""Stages in forms that other runtimes and vendors' compilers take."""
