"""`prism schedule`: which schedules are legal for a model, which to try, what they cost. Never imports torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from ..design.drawing import staircase_svg
from ..design.families import FAMILIES, expand_arm
from ..design.guidelines import FUSED_LIMIT, PHASE_LAYERS, Device, DType, check_guidelines
from ..design.space import ScheduleSpace
from ..errors import InputError
from ..model.head_schedule import HeadSchedule, RuleResult
from .options import CONFIG, Switch
from .schedule_card import Comparison, breakable, card_data, card_lines, print_json, print_lines, wrap

_SPACE_MEANINGS = {
    "relaxed": "lists of head counts that divide d_model, up to the base's",
    "hard_rules": "of them never fall and end at the base heads",
    "fused": f"of them have no head dim above {FUSED_LIMIT}",
    "guidelines": "of them hold a step for 2 to 4 layers, and the base for half",
}


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model's sizes, shared by every command here."""

    d_model: int
    """Width of the model: values in the residual stream of a token."""
    layers: int | None = None
    """Number of layers; needed wherever a family is named instead of a list of heads."""
    heads: int | None = None
    """Base heads: the head count of the uniform model that the schedule is measured against."""
    context: int = 1024
    """Tokens in a sequence, for the costs."""
    vocab_size: int = 50257
    """Rows of the embedding, for the costs."""
    json: Switch = False
    """Print JSON instead of text, with exact figures."""


@dataclass(frozen=True, kw_only=True)
class RuleOptions(ModelOptions):
    """What the rules about speed depend on."""

    device: Device = "cuda"
    """Device that will train it. cuda-consumer: compute capability 8.6 to 8.9 and 12.x (GeForce and the like)."""
    dtype: DType = "bfloat16"
    """Type that attention computes in."""
    tp: int | None = None
    """Tensor-parallel size to check: devices that split the heads of each layer."""


@dataclass(frozen=True, kw_only=True)
class Suggest(RuleOptions):
    """Suggest a schedule for a model, and the controls to compare it with."""


@dataclass(frozen=True, kw_only=True)
class List(ModelOptions):
    """List the families of schedules for a model, and count all that are legal."""


@dataclass(frozen=True, kw_only=True)
class Show(RuleOptions):
    """Show one schedule: its staircase, rules and costs."""

    text: tyro.conf.Positional[str]
    """Heads x layers like 3x2,6x2,8x2,12x6, a list like 3,3,6,6, or a family like prism or uniform-6."""
    svg: Path | None = None
    """Also draw the staircase into this new SVG file."""


@dataclass(frozen=True, kw_only=True)
class Check(RuleOptions):
    """Check one schedule against every rule.

    A schedule that is well formed exits 0, whatever the rules say of it.
    """

    text: tyro.conf.Positional[str]
    """Heads x layers like 3x2,6x2,8x2,12x6, a list like 3,3,6,6, or a family like prism or uniform-6."""
    strict: Switch = False
    """Exit 2 when a rule fails (warnings do not count)."""
    kv_heads: int | None = None
    """Refused: grouped key-value heads are not supported yet."""


def main(argv: list[str]) -> int:
    """Run `prism schedule` and return its exit code. Raises `InputError` and `ScheduleError` for the user's faults."""
    options: Suggest | List | Show | Check = tyro.cli(
        Suggest | List | Show | Check,
        args=argv,
        prog="prism schedule",
        config=CONFIG,
    )
    _require_positive(options)
    match options:
        case Suggest():
            _suggest(options)
        case List():
            _list(options)
        case Show():
            _show(options)
        case Check():
            return _check(options)
    return 0


def _suggest(options: Suggest) -> None:
    schedule = expand_arm("prism", **_family_sizes(options, "suggest"))["prism"]
    controls = {arm: FAMILIES[arm] for arm in ("uniform", "sweep", "reversed")}
    command = [
        f"prism compare --recipe small --layers {options.layers} --d-model {options.d_model} --heads {options.heads}",
        f"--context {options.context} --data TEXT --arms uniform sweep prism reversed --dry-run",
    ]
    card = _compare(schedule, options), _rules(schedule, options)
    if options.json:
        print_json({"suggestion": card_data(*card), "controls": controls, "command": " ".join(command)})
        return
    advice = "Nothing above says that it is better. What tells is a comparison with its controls:"
    lines = [*card_lines(*card), "", *wrap("", advice), ""]
    lines += [line for arm, meaning in controls.items() for line in wrap(f"  {arm:<9} ", meaning)]
    training = "The recipe says how it is trained. small: as the paper's, 2.88B tokens; your own file: docs/recipes.md."
    print_lines([*lines, "", f"  {command[0]} \\", f"    {command[1]}", "", *wrap("", training)])


def _list(options: List) -> None:
    sizes = _family_sizes(options, "list")
    families: dict[str, dict[str, HeadSchedule] | str] = {}
    for arm in (name.replace("-K", "-1") for name in FAMILIES if name != "uniform-N"):
        try:
            families[arm] = expand_arm(arm, **sizes)
        except InputError as error:
            if arm == "uniform":
                raise
            families[arm] = error.problems[0].removeprefix(f"arm {arm}: ")
    counts = _space_counts(sizes)
    if options.json:
        schedules = {
            name: s.heads for found in families.values() if isinstance(found, dict) for name, s in found.items()
        }
        missing = {arm: reason for arm, reason in families.items() if isinstance(reason, str)}
        print_json({"schedules": schedules, "missing": missing, "space": counts})
        return
    space = [
        f"{n:>16,}  {_SPACE_MEANINGS[key]}" if n < 10**12 else f"{n:>16.2e}  {_SPACE_MEANINGS[key]}"
        for key, n in counts.items()
    ]
    print_lines([*_family_lines(families, sizes), "", *space])


def _show(options: Show) -> None:
    schedule = _read(options.text, options)
    card = _compare(schedule, options), _rules(schedule, options)
    if options.svg is not None:
        _write_new(options.svg, staircase_svg(schedule))
    if options.json:
        print_json(card_data(*card))
    else:
        print_lines(card_lines(*card) + ([] if options.svg is None else ["", f"drawn into {options.svg}"]))


def _check(options: Check) -> int:
    if options.kv_heads is not None:
        raise InputError(
            f"--kv-heads {options.kv_heads}: grouped key-value heads are not supported yet; "
            "leave it out, every layer then has as many key-value heads as query heads"
        )
    schedule = _read(options.text, options)
    rules = _rules(schedule, options)
    if options.json:
        print_json(card_data(_compare(schedule, options), rules))
    else:
        print_lines(card_lines(_compare(schedule, options), rules))
    failed = any(rule.outcome == "fail" for rule in rules)
    return 2 if options.strict and failed else 0


def _read(text: str, options: ModelOptions) -> HeadSchedule:
    """The schedule of a text, which may name a family when layers and heads are given."""
    if text.strip()[:1] in tuple("0123456789["):
        return HeadSchedule.parse(text, d_model=options.d_model, n_layers=options.layers)
    found = expand_arm(text, **_family_sizes(options, repr(text)))
    if len(found) > 1:
        raise InputError(f"{text!r} is {len(found)} schedules; name one of them: {', '.join(found)}")
    return next(iter(found.values()))


def _require_positive(options: ModelOptions) -> None:
    values = {"--layers": options.layers, "--heads": options.heads, "--context": options.context}
    values |= {"--d-model": options.d_model, "--vocab-size": options.vocab_size}
    problems = [f"{flag} {value} is not positive" for flag, value in values.items() if value is not None and value < 1]
    if problems:
        raise InputError(problems)


def _family_sizes(options: ModelOptions, what: str) -> dict[str, Any]:
    sizes = {"--layers": options.layers, "--heads": options.heads}
    missing = [flag for flag, value in sizes.items() if value is None]
    if missing:
        raise InputError(f"{what} needs {' and '.join(missing)}: a family is a rule over layers, width and base heads")
    return {"n_layers": options.layers, "d_model": options.d_model, "base_heads": options.heads}


def _space_counts(sizes: dict[str, Any]) -> dict[str, int]:
    """How many schedules there are, from every list of divisors to those that keep each guideline."""
    half = (sizes["n_layers"] + 1) // 2
    fused = {**sizes, "max_head_dim": FUSED_LIMIT}
    return {
        "relaxed": ScheduleSpace(**sizes, monotone=False, boundary=False).count,
        "hard_rules": ScheduleSpace(**sizes).count,
        "fused": ScheduleSpace(**fused).count,
        "guidelines": ScheduleSpace(**fused, phase_layers=PHASE_LAYERS, min_base_layers=half).count,
    }


def _family_lines(families: dict[str, dict[str, HeadSchedule] | str], sizes: dict[str, Any]) -> list[str]:
    layers, width, base = sizes.values()
    lines = [f"{layers} layers, d_model {width}, {base} base heads of {width // base}", "", "softmax  arm"]
    for arm, found in families.items():
        if isinstance(found, str):
            first = next(other for other, reason in families.items() if reason == found)
            lines += wrap(f"      –  {arm:<11} ", found if first == arm else f"as for {first}")
            continue
        for name, schedule in found.items():
            share = sum(schedule.heads) / (base * layers)
            lines += wrap(f"  {share:>5.0%}  {name:<11} ", breakable(schedule))
    legend = "softmax: entries of the attention softmax relative to uniform's; the rest is equal"
    return [*lines, "", *wrap("", legend)]


def _rules(schedule: HeadSchedule, options: RuleOptions) -> list[RuleResult]:
    base = options.heads
    soft = check_guidelines(
        schedule, base_heads=base, device=options.device, dtype=options.dtype, tensor_parallel=options.tp
    )
    return [*schedule.check(base_heads=base), *soft]


def _compare(schedule: HeadSchedule, options: ModelOptions) -> Comparison:
    return Comparison.with_uniform(
        schedule, base_heads=options.heads, context=options.context, vocab_size=options.vocab_size
    )


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} exists and is not overwritten; choose another name or remove it") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
