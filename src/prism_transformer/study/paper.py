"""The paper's own numbers (arXiv 2606.27449), shown as the paper's and never mixed with measured ones."""

from typing import NamedTuple


class PaperResult(NamedTuple):
    """FineWeb validation loss, nats per token: mean and sd of 3 seeds; the gap is not from paired runs."""

    scale: str
    schedule: str
    tokens: str
    uniform: float
    uniform_sd: float
    prism: float
    prism_sd: float

    @property
    def gap(self) -> float:
        return self.prism - self.uniform


RESULTS = (
    PaperResult("small, 124M", "3x2,6x2,8x2,12x6", "2.88B", 3.3748, 0.0027, 3.3604, 0.0010),
    PaperResult("medium, 354M", "4x3,8x3,16x18", "10.49B", 2.9944, 0.0015, 2.9873, 0.0020),
    PaperResult("large, 757M", "6x3,12x3,16x18", "20.97B", 2.8106, 0.0002, 2.8022, 0.0013),
)
