"""Faster ways to the same numbers, chosen by device; the plain path is in model/ and stays the reference."""

LOGIT_ROWS = 512
"""Rows of logits that the chunked loss holds at a time. Measured on a CPU with vocabularies of 1024 and 4096: 256 to
512 are best, 128 and 1024 slower."""
