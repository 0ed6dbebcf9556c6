"""The command line: `prism VERB …`. Each verb is a thin module of the same name, imported when it is asked for."""

import difflib
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from keyword import iskeyword
from types import ModuleType

VERBS = {
    "schedule": "design: which schedules are legal, which to try, what they cost",
    "compare": "compare: does a schedule beat uniform heads, on my text, how sure?",
    "search": "find a schedule: many of them, one budget, an honest end",
    "train": "train: one model",
    "eval": "understand: what a model scores on tasks and on text",
    "attention": "understand: how far each layer looks back",
    "bench": "understand: what a schedule costs on this device",
    "generate": "use: text from a model",
    "export": "use: the model in the formats of other tools",
    "import": "use: a Llama-style model as a run here",
    "data": "text to token shards",
    "reproduce": "the paper, end to end, beside its own numbers",
    "report": "the result of a study again, or of another trainer's losses",
}

USAGE = """usage: prism VERB [options]     (prism VERB --help for its options)

The workbench for attention-head schedules: transformers whose number of heads
changes from layer to layer while every weight keeps its shape.

{verbs}

Start with:
  prism schedule suggest --layers 12 --d-model 768 --heads 12
  prism compare --recipe demo
"""


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return the exit code: 0 done, 2 input, 3 the run could not go on, 75 or 130 stopped."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage(), end="")
        return 0
    verb, rest = arguments[0], arguments[1:]
    if verb == "--version":
        from importlib.metadata import version

        print(f"prism-transformer {version('prism-transformer')}")
        return 0
    if verb == "--completion":
        return _guarded("completion", rest)
    if verb not in VERBS:
        close = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"the verbs are: {', '.join(VERBS)}"
        print(f"error: no verb {verb!r}; {hint}", file=sys.stderr)
        return 2
    return _guarded(verb, rest)


def verb_module(verb: str) -> ModuleType:
    """The module of a verb, named after it as far as Python allows."""
    return import_module(f".{verb}_" if iskeyword(verb) else f".{verb}", __name__)


def _guarded(verb: str, arguments: list[str]) -> int:
    """Run a verb; what the user or the machine caused ends in a sentence and an exit code."""
    from ..errors import InputError, ending
    from ..model.head_schedule import ScheduleError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # "?" for ± where an encoding has none, as in a pipe on Windows
            stream.reconfigure(errors="replace")
    try:
        code: int = verb_module(verb).main(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        end = ending(InputError(error.problems) if isinstance(error, ScheduleError) else error)
        if end is None:
            raise
        code, sentences = end
        for sentence in sentences:
            print(f"error: {sentence}" if code in (2, 3) else sentence, file=sys.stderr)
        return code


def _usage() -> str:
    width = max(map(len, VERBS))
    return USAGE.format(verbs="\n".join(f"  {verb:{width}}  {help_}" for verb, help_ in VERBS.items()))
