"""`prism --completion bash|zsh`: completion for the shell, made from the help of every verb, so it knows them all."""

import contextlib
import io
import re

from ..errors import InputError
from . import VERBS, verb_module

SHELLS = ("bash", "zsh")
FOR_ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"
SCRIPT = """\
_prism() {{
    local here="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" known=""
    local verb="${{COMP_WORDS[1]}}" second="${{COMP_WORDS[2]}}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        known="{verbs} --help --version --completion"
    else
        case "$verb $second" in
{cases}
        esac
        [[ $here == -* ]] || [[ $COMP_CWORD -eq 2 && $known != -* ]] || known=""
        case "$verb $before" in
{choices}
        esac
    fi
    COMPREPLY=($(compgen -W "$known" -- "$here"))
}}
complete -o default -F _prism prism
"""
OPTION = re.compile(r"^[│ ] (?:-h, )?(--[a-z][a-z0-9-]*)(?:, (--no-[a-z0-9-]+))?", re.MULTILINE)
CHOICES = re.compile(r"^[│ ] (--[a-z][a-z0-9-]*) \[?\{([a-z0-9,_-]+)\}(?!\|)", re.MULTILINE)
SUBCOMMAND = re.compile(r"^[│ ] +[•*-] (\w+)", re.MULTILINE)


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        raise InputError(f"name the shell: prism --completion {SHELLS[0]}")
    print(script(argv[0]), end="")
    return 0


def script(shell: str) -> str:
    """What the shell is to evaluate: eval "$(prism --completion bash)". Raises InputError for another shell."""
    if shell not in SHELLS:
        raise InputError(f"no completion for {shell!r}; choose one of: {', '.join(SHELLS)}")
    options: dict[str, list[str]] = {}
    choices: dict[str, list[str]] = {}
    for verb in VERBS:
        text = _help([verb])
        below = SUBCOMMAND.findall(text)
        texts = {f"{verb} {name}": _help([verb, name]) for name in below}
        options |= {f"{name}*": _options(found) for name, found in texts.items()}  # before those of the verb
        options[f"{verb} *"] = below or _options(text)
        for found in (text, *texts.values()):
            choices |= {f"{verb} {option}": values.split(",") for option, values in CHOICES.findall(found)}
    filled = SCRIPT.format(verbs=" ".join(VERBS), cases=_cases(options), choices=_cases(choices))
    return FOR_ZSH + filled if shell == "zsh" else filled


def _options(text: str) -> list[str]:
    return [option for found in OPTION.findall(text) for option in found if option]


def _cases(words: dict[str, list[str]]) -> str:
    """The branches of a case: a pattern (quoted up to its asterisk) and the words that are known there."""
    quoted = {f'"{key[:-1]}"*' if key.endswith("*") else f'"{key}"': value for key, value in words.items()}
    return "\n".join(f'        {key}) known="{" ".join(value)}" ;;' for key, value in quoted.items())


def _help(arguments: list[str]) -> str:
    """What `prism ARGUMENTS --help` prints."""
    verb, *rest = arguments
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        verb_module(verb).main([*rest, "--help"])
    return printed.getvalue()
