"""Problem: graph, board and request as plain arrays."""
