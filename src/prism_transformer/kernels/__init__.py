"""Faster ways to the same numbers, chosen by device; the plain path is in model/ and stays the reference."""

LOGIT_ROWS = 512
"""Rows of logits that the chunked loss holds at a time. Measured on a CPU with vocabularies of 1024 and 4096: 256 to
512 are best, 128 and 1024 slower."""

GPU_LOGIT_ROWS = 8192
"""Enough rows to fill a large GPU with one product; not measured."""


def logit_rows(*, on_cpu: bool) -> int:
    return LOGIT_ROWS if on_cpu else GPU_LOGIT_ROWS
