"""Nine minutes on one large GPU: the small model with uniform heads, the prism schedule and uniform-6, side by side.

    prism data prepare fineweb --tokens 200M --out shards     (or your own: prism data prepare TEXT --tokenizer gpt2)
    python benchmarks/gpu_pilot.py shards --out pilots/first

One seed, as many tokens as fit, the same tokens in the same order for all three, in three processes that share the GPU.
It shows whether the machinery runs there, how fast, and which way the loss goes; one seed decides nothing. It writes a
study folder, and in it pilot.md (for docs/lab/), pilot.json and the curves. The same command goes on with a pilot that
was ended.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from prism_transformer.data import Corpus, DataSettings
from prism_transformer.errors import InputError, Stopped, ending
from prism_transformer.files import STUDY
from prism_transformer.settings import from_mapping
from prism_transformer.study import runner, speed
from prism_transformer.study.compare import conclude, open_study
from prism_transformer.study.context import environments
from prism_transformer.study.estimate import EVALUATION_COST, evaluated_tokens
from prism_transformer.study.figures import LIGHT, WIDTH, save_figure, series_style, styled
from prism_transformer.study.folder import Study
from prism_transformer.study.plan import StudySettings
from prism_transformer.training.recipe import DeviceSettings, Recipe, with_training
from prism_transformer.training.recipe_files import load_recipe

ARMS = ("uniform", "prism", "uniform-6")
START = time.monotonic()
RESERVE_SECONDS = 90
"""for three processes to start, to save, and for the report"""
USED = 0.75
"""of the time that is left: three processes share a GPU less well than one has it"""
Losses = Mapping[str, Mapping[int, tuple[int, float]]]
"""arm -> step -> (tokens, validation loss)"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shards", type=Path, help="a prepared folder")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the pilot")
    parser.add_argument("--minutes", type=float, default=9.0, help="for everything (9)")
    parser.add_argument("--recipe", default="small", help="a recipe's name or file (small)")
    parser.add_argument("--tokens-per-step", type=int, default=65_536, help="a quarter of the paper's: more steps")
    parser.add_argument("--micro-batch", type=int, default=16, help="three processes share the memory")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(argv)
    try:
        pilot(options, deadline=START + 60 * options.minutes)
    except (Exception, KeyboardInterrupt) as error:
        if (end := ending(error)) is None:
            raise
        print("\n".join(end[1]), file=sys.stderr)
        return end[0]
    return 0


def pilot(options: argparse.Namespace, *, deadline: float) -> None:
    """Measure the speed, train what fits, and write what was found."""
    study = Study.open(options.out) if (options.out / STUDY).exists() else begin(options, deadline)
    recipe = study.file.recipe
    print(f"{recipe.trained_tokens:,} tokens in {recipe.steps:,} steps for each of {', '.join(ARMS)}", flush=True)

    def on_progress(progress: runner.Progress) -> None:
        if time.monotonic() > deadline - RESERVE_SECONDS / 2 and not progress.is_complete:
            raise Stopped(f"the time is up; the same command goes on, and what is there is in {options.out}", 75)

    try:
        runner.run_study(study, on_progress=on_progress, say=lambda sentence: print(sentence, flush=True))
    finally:
        write(study)


def begin(options: argparse.Namespace, deadline: float) -> Study:
    """The study, with as many tokens as fit."""
    recipe = recipe_of(options)
    corpus = Corpus.open(options.shards, tokenizer="gpt2")
    tokens_per_second = speed.training_speed(recipe, corpus.vocab_size).tokens_per_second / len(ARMS)
    seconds = USED * (deadline - time.monotonic() - RESERVE_SECONDS)
    evaluated = EVALUATION_COST * evaluated_tokens(recipe, len(corpus.split("validation"))) / tokens_per_second
    steps = int((seconds - evaluated) * tokens_per_second) // recipe.training.tokens_per_step
    if steps < recipe.training.evaluations:
        raise InputError(
            f"{seconds:.0f} s at {tokens_per_second:,.0f} tokens/s an arm, of which {evaluated:.0f} s go to "
            f"evaluation, are too few for {recipe.training.evaluations} steps; give more minutes, or shards with a "
            "smaller validation split"
        )
    print(f"{tokens_per_second * len(ARMS):,.0f} tokens/s on {options.device}, measured here", flush=True)
    recipe = with_training(recipe, tokens=steps * recipe.training.tokens_per_step)
    settings = StudySettings(arms=ARMS, primary="prism", seeds=1, jobs=len(ARMS))
    return open_study(recipe, options.out, settings=settings, name="GPU pilot", say=print)


def recipe_of(options: argparse.Namespace) -> Recipe:
    """The recipe on these shards, in small steps, with evaluations that cost little."""
    stated = load_recipe(options.recipe).recipe
    recipe = with_training(
        stated,
        tokens_per_step=options.tokens_per_step,
        micro_batch=options.micro_batch,
        evaluation_tokens=min(stated.training.evaluation_tokens, 4 * options.tokens_per_step),
    )
    device = from_mapping(DeviceSettings, {"device": options.device}, where="device", default=recipe.device)
    name = Corpus.open(options.shards, tokenizer="gpt2").tokenizer.name
    recipe = replace(recipe, data=DataSettings(paths=(str(options.shards),), tokenizer=name), device=device)
    recipe.check()
    return recipe


def losses(study: Study) -> Losses:
    """The evaluations of every run so far."""
    return {
        run.arm: {r["step"]: (r["tokens"], r["val_loss"]) for r in study.records(run) if "val_loss" in r}
        for run in study.runs
    }


def write(study: Study) -> None:
    """results.json and the report of the study; pilot.json, pilot.md and the curves beside them."""
    conclude(study)
    found = losses(study)
    speeds = {run.arm: study.result(run).tokens_per_second for run in study.runs}
    content = {"losses": found, "tokens_per_second": speeds, "environments": environments(study)}
    (study.folder / "pilot.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if all(found.values()):
        save_figure(curves(found), study.folder / "pilot")
    page = "\n".join(lines(study, found, speeds)) + "\n"
    (study.folder / "pilot.md").write_text(page, encoding="utf-8")
    print(page)


def lines(study: Study, found: Losses, speeds: Mapping[str, float | None]) -> list[str]:
    """The page for the log of experiments."""
    recipe, machine = study.file.recipe, (environments(study) or [{}])[0]
    where = machine.get("gpu") or machine.get("processor") or "an unknown device"
    page = [
        "# GPU pilot: uniform, prism and uniform-6 side by side",
        "",
        f"{date.today()}. {where}; {recipe.trained_tokens:,} tokens an arm in {recipe.steps:,} steps of "
        f"{recipe.training.tokens_per_step:,}, one seed, three processes on one device. One seed decides nothing.",
        "",
        f"| step | tokens | {' | '.join(ARMS)} | prism - uniform | uniform-6 - uniform | prism - uniform-6 |",
        f"|{'---|' * (len(ARMS) + 5)}",
    ]
    for step in sorted(set.intersection(*(set(of_arm) for of_arm in found.values()))):
        loss = {arm: found[arm][step][1] for arm in ARMS}
        pairs = (("prism", "uniform"), ("uniform-6", "uniform"), ("prism", "uniform-6"))
        differences = " | ".join(f"{loss[arm] - loss[other]:+.4f}" for arm, other in pairs)
        tokens = found["uniform"][step][0]
        page.append(f"| {step:,} | {tokens:,} | {' | '.join(f'{loss[arm]:.4f}' for arm in ARMS)} | {differences} |")
    told = ", ".join(f"{arm} {speed:,.0f}" for arm, speed in speeds.items() if speed)
    return [*page, "", f"Tokens/s of training, while all three ran: {told or 'not known yet'}."]


def curves(found: Losses) -> Figure:
    """Validation loss above, the differences to uniform below, against tokens."""
    with mpl.rc_context(styled(LIGHT)):
        figure = Figure(figsize=(WIDTH, 5.4), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        for arm, (colour, dashes) in series_style(ARMS, LIGHT).items():
            line = {"color": colour, "ls": dashes, "lw": 1.8}
            above.plot(*zip(*sorted(found[arm].values()), strict=True), label=arm, **line)
            common = sorted(found[arm].keys() & found["uniform"].keys())
            tokens = [found[arm][step][0] for step in common]
            below.plot(tokens, [found[arm][step][1] - found["uniform"][step][1] for step in common], **line)
        above.set_ylabel("validation loss, nats")
        below.set_ylabel("minus uniform")
        below.set_xlabel("tokens")
        figure.legend(loc="outside upper left", ncols=len(ARMS), handlelength=2.6)
    return figure


if __name__ == "__main__":
    sys.exit(main())
