"""Demo: a small trained detector, and scenes for it."""
