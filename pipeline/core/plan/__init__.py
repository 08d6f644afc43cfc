"""Plans: stages with their devices, as values and as files."""
