"""The paper, end to end."""
