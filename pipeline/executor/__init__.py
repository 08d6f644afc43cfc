"""Stage -> built -> loaded on its device."""
