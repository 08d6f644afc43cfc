"""Orders: divisions of a graph with waiting branches."""
