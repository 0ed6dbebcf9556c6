"""Faster ways to the same numbers, chosen by device; the plain path is in model/ and stays the reference."""
