"""Write Events on pods."""
