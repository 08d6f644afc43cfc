"""Sources of frames."""
