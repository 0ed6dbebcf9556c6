"""What each target sets beside the paper: rows out of a study's results, its zero-shot scores and its attention."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .beside import Row, beside, claim, losses, paired
from .cells import COLUMNS, cells
from .paper import ABLATION, LOSSES, SPEEDS, ZERO_SHOT, Figure
from .targets import CAPTION, REHEARSAL

PAPER_CONTEXT = 1024
LATE = 1 / 3
"""of the layers, the last ones, in which the paper sees about no difference of attention distance"""


def section(
    target: str,
    scale: str,
    results: Mapping[str, Any],
    *,
    zero_shot: Mapping[str, Any],
    zero_shot_label: str,
    attention: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """One part of reproduction.json: {target, scale, paper_scale, caption, notes, columns, rows}."""
    of_paper = "small" if scale == REHEARSAL else scale
    rows = {
        "table2": lambda: [*_table2(of_paper, results), *_zero_shot(of_paper, zero_shot, zero_shot_label)],
        "ablation": lambda: _ablation(results),
        "attention": lambda: _attention(attention, results) if attention else [],
        "controls": lambda: _controls(of_paper, results),
    }[target]()
    return {
        "target": target,
        "scale": scale,
        "caption": CAPTION if scale == REHEARSAL else "",
        "paper_scale": of_paper,
        "notes": [*NOTES[target], *_partial(target, zero_shot, zero_shot_label)],
        "columns": COLUMNS,
        "rows": [row.mapping() | {"cells": cells(row)} for row in rows],
    }


NOTES: Mapping[str, Sequence[str]] = {
    "table2": (
        "The paper's gap has the spread of two means that are not paired; ours is paired by seed.",
        "The paper does not say whether its accuracies are acc or acc_norm: both stand beside its number.",
        "Its tokens/s are those of 8 H100, ours of one process here; only the ratio of the arms compares.",
    ),
    "ablation": (
        "The paper gives no sd for these: ours stands for both.",
        "Runs taken over from another study were trained at another time: speeds compare on a quiet device only.",
    ),
    "attention": (
        "The paper gives attention distances in figures only, and in words: whether those hold is said by the interval "
        "over our seeds.",
        "The layer of the peak is where ours is largest, so chance alone puts it above zero a little.",
        f"Its distances, 100 to 400 tokens, are at a context of {PAPER_CONTEXT}.",
    ),
    "controls": (
        "The paper has none of these but prism. Below zero: a gain over uniform heads, in the last rows of prism over "
        "that control.",
    ),
}


def _partial(target: str, zero_shot: Mapping[str, Any], label: str) -> list[str]:
    return ["Ours are on the first items of each task only."] if target == "table2" and label and zero_shot else []


def _table2(scale: str, results: Mapping[str, Any]) -> list[Row]:
    stated = LOSSES[scale]
    rows = [beside(f"loss, {arm}", "nats", stated[arm], list(losses(results, arm).values())) for arm in stated]
    spread = math.hypot(stated["uniform"].sd or 0, stated["prism"].sd or 0)
    gap = Figure(stated["prism"].mean - stated["uniform"].mean, spread)
    rows.append(beside("prism - uniform", "nats", gap, paired(results, "prism", "uniform")))
    arms = results["arms"]
    for arm in stated:
        speed = arms[arm]["tokens_per_second"] if arm in arms else None
        rows.append(Row(what=f"speed, {arm}", unit="tokens/s", paper=SPEEDS[scale], ours=speed, n=_seeds(arms, arm)))
    return [*rows, _speed_ratio("prism", 1.0, results)]


def _seeds(arms: Mapping[str, Any], arm: str) -> int:
    return int(arms.get(arm, {}).get("n", 0))


def _speed_ratio(arm: str, paper: float, results: Mapping[str, Any]) -> Row:
    ratio = results["arms"].get(arm, {}).get("relative_speed")
    return Row(
        what=f"speed, {arm} / uniform",
        unit="ratio",
        paper=paper,
        ours=ratio,
        n=_seeds(results["arms"], arm),
        difference=None if ratio is None else ratio - paper,
    )


def _zero_shot(scale: str, zero_shot: Mapping[str, Any], label: str) -> list[Row]:
    rows = []
    for task, figures in ZERO_SHOT[scale].items():
        found = zero_shot.get(f"{task}{label}")
        metrics = ("word_perplexity",) if task == "wikitext" else ("acc", "acc_norm")
        for arm, figure in zip(("uniform", "prism"), figures, strict=True):
            of_arm = found["arms"].get(arm, {}).get("metrics", {}) if found else {}
            known = [metric for metric in metrics if metric in of_arm] or metrics[:1]
            for metric in known:
                factor = 1 if task == "wikitext" else 100
                values = [factor * value for value in of_arm.get(metric, {}).get("per_seed", ())]
                unit = "words" if task == "wikitext" else "%"
                missing = "not there yet" if found else "not scored"
                rows.append(beside(f"{task} {metric}, {arm}", unit, Figure(figure), values, missing=missing))
    return rows


def _ablation(results: Mapping[str, Any]) -> list[Row]:
    uniform = LOSSES["small"]["uniform"]
    rows = [beside("loss, uniform", "nats", uniform, list(losses(results, "uniform").values()))]
    for arm, stated in ABLATION.items():
        rows.append(beside(f"loss, {arm}", "nats", Figure(stated.loss), list(losses(results, arm).values())))
    for arm, stated in ABLATION.items():
        gains = [-difference for difference in paired(results, arm, "uniform")]
        rows.append(beside(f"improvement, {arm}", "nats", Figure(stated.improvement), gains))
    return [*rows, *(_speed_ratio(arm, stated.speed, results) for arm, stated in ABLATION.items())]


def _attention(attention: Mapping[str, Any], results: Mapping[str, Any]) -> list[Row]:
    """What the paper says about D_l (section 5)."""
    heads = results["arms"]["prism"]["heads"]
    layers, base = len(heads), heads[-1]
    early = [k for k in range(layers) if heads[k] == heads[0]]
    ramp_end = next(k for k in range(layers) if heads[k] == base)
    late = list(range(layers - round(layers * LATE), layers))
    middle = [k for k in range(ramp_end, layers) if k not in late] or [ramp_end]
    deltas = _deltas(attention)
    peak = max(middle, key=lambda k: float(np.mean([of_seed[k] for of_seed in deltas])))
    distances = [
        layer["distance"]["mean"] for arm in ("uniform", "prism") for layer in attention["arms"][arm]["layers"]
    ]

    def mean_over(chosen: Sequence[int]) -> list[float]:
        return [float(np.mean([of_seed[k] for k in chosen])) for of_seed in deltas]

    return [
        claim(f"distance, prism - uniform, layers {_span(early)}", "tokens", "negative", mean_over(early), sign=-1),
        claim(f"its peak in mid-network, layer {peak + 1}", "tokens", "positive", mean_over([peak]), sign=1),
        claim(f"distance, prism - uniform, layers {_span(late)}", "tokens", "about zero", mean_over(late), sign=0),
        _bound("least distance of a layer", "100 or more", min(distances), min(distances) >= 100, attention),
        _bound("largest distance of a layer", "400 or less", max(distances), max(distances) <= 400, attention),
    ]


def _bound(what: str, says: str, value: float, holds: bool, attention: Mapping[str, Any]) -> Row:
    known = attention["settings"]["context"] == PAPER_CONTEXT  # with another one distances are others
    seeds = min(len(arm["seeds"]) for arm in attention["arms"].values())
    return Row(
        what=what,
        unit="tokens",
        paper=None,
        paper_says=says,
        ours=value,
        n=seeds,
        within=holds if known else None,
    )


def _deltas(attention: Mapping[str, Any]) -> list[list[float]]:
    """By seed: D_l(prism) - D_l(uniform) for each layer."""
    arms = {name: attention["arms"][name] for name in ("uniform", "prism")}
    by_seed = {
        name: {
            seed: [layer["distance"]["per_seed"][place] for layer in arm["layers"]]
            for place, seed in enumerate(arm["seeds"])
        }
        for name, arm in arms.items()
    }
    common = sorted(by_seed["uniform"].keys() & by_seed["prism"].keys())
    return [
        [own - its for own, its in zip(by_seed["prism"][seed], by_seed["uniform"][seed], strict=True)]
        for seed in common
    ]


def _span(layers: Sequence[int]) -> str:
    return f"{layers[0] + 1} to {layers[-1] + 1}" if len(layers) > 1 else str(layers[0] + 1)


def _controls(scale: str, results: Mapping[str, Any]) -> list[Row]:
    stated = LOSSES[scale]
    others = [arm for arm in results["arms"] if arm != "uniform"]
    gap = Figure(stated["prism"].mean - stated["uniform"].mean, math.hypot(*(f.sd or 0 for f in stated.values())))
    rows = [
        beside(f"{arm} - uniform", "nats", gap if arm == "prism" else None, paired(results, arm, "uniform"))
        for arm in others
    ]
    controls = [arm for arm in others if arm != "prism"]
    return [*rows, *(beside(f"prism - {arm}", "nats", None, paired(results, "prism", arm)) for arm in controls)]
