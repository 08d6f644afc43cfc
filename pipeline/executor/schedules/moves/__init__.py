"""What only moves elements."""
