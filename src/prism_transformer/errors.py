"""The errors that end a command with a sentence instead of a traceback.

`model.head_schedule.ScheduleError` belongs to them: the model's folder is exported as remote code, so it imports
nothing from here.
"""

import errno
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


class DivergedError(RunError):
    """The loss, the gradient or an answer of the model is not finite."""


class Stopped(Exception):  # noqa: N818 - not an error: the run was told to stop, and its state is saved
    """A signal ended the run after its state was saved: exit code 75 (SIGTERM, SIGHUP) or 130 (SIGINT)."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


_UNUSABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)


def is_full_disk(error: OSError) -> bool:
    """Whether there is no room left, or none that this user may have."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def ending(error: BaseException) -> tuple[int, tuple[str, ...]] | None:
    """The exit code of a command that `error` ends, and the sentences about it; None where the fault is ours."""
    match error:
        case InputError():
            return 2, error.problems
        case RunError():
            return 3, (str(error),)
        case Stopped():
            return error.exit_code, (str(error),)
        case KeyboardInterrupt():
            return 130, ("interrupted",)
        case OSError() if is_full_disk(error):
            return 3, (f"{error.filename or 'the disk'}: {error.strerror}; free some, and run the command again",)
        case OSError() if error.errno in _UNUSABLE and error.filename:
            return 2, (f"{error.filename}: {error.strerror}",)
    return None
