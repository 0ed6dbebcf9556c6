"""Choosing a schedule: many candidates, one budget, and an end that does not flatter the winner."""
