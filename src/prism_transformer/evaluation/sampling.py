"""How a text is drawn from a model's probabilities: plain settings, read without torch."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 0.8
    """0: always the most likely token."""
    top_k: int = 0
    """Only the k most likely tokens; 0: all."""
    top_p: float = 1.0
    """Only the most likely tokens that make up this probability together."""
    seed: int = 0
    """The same seed gives the same text, with the same prompts and batch size on the same machine."""

    def problems(self) -> list[str]:
        problems = []
        if not 0 <= self.temperature < float("inf"):
            problems.append(f"temperature {self.temperature} must be 0 (the most likely token) or more")
        if self.top_k < 0:
            problems.append(f"top-k {self.top_k} must be 0 (all tokens) or more")
        if not 0 < self.top_p <= 1:
            problems.append(f"top-p {self.top_p} must be above 0 and at most 1")
        if not 0 <= self.seed < 2**63:
            problems.append(f"seed {self.seed} must lie in 0..2^63-1")
        return problems
