"""Model -> graph -> cuts -> stages."""
