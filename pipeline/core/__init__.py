"""Values that are written to files: boards, plans, shapes, packed models."""
