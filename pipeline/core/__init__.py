"""Values of files: boards, plans, shapes, packed models."""
