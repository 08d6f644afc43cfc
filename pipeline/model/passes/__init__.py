"""Clean-up of a whole graph before it is cut."""
