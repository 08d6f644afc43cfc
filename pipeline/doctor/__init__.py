"""Doctor: what a machine needs for a board or a bundle, checked on it."""
