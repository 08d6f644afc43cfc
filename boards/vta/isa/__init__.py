"""VTA's instruction set: fields, words, programs."""
