"""The two errors that end a command with a sentence instead of a traceback.

`model.head_schedule.ScheduleError` is the third: the model's folder is exported as remote code, so it imports nothing
from here.
"""

from collections.abc import Sequence


class InputError(ValueError):
    """What the user gave cannot be used: exit code 2.

    Takes every problem found, not only the first; each one states the value, the rule and the remedy.
    """

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class RunError(RuntimeError):
    """A run could not go on (a loss that is not finite, a full disk): exit code 3. What was saved before is safe."""
