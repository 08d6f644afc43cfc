"""Workflow: the public verbs, the only place where all rooms meet."""
