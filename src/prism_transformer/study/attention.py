"""Attention distance of a study: D_l of every arm, and its paired difference to the baseline, layer by layer.

STUDY/attention.json                the figures, each traceable to the file of its run
STUDY/figures/attention-*.svg .png  D_l by layer for each arm, and bars of the difference (paper, section 5)
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..files import read_json, write_json
from .folder import Study
from .plan import RunKey
from .statistics import MIN_PAIRS, paired_t

if TYPE_CHECKING:
    from ..evaluation.measured_attention import Documents

ATTENTION = "attention.json"


def measure_study(
    study: Study,
    *,
    sequences: int,
    context: int | None,
    documents: "Documents",
    device: Any,
    begin: Callable[[str], None] = lambda name: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Measure every finished run, or take what was kept in it, and return the content of attention.json.

    Raises InputError where fewer than two arms have a finished run: a difference takes two.
    """

    from ..evaluation.attention import kept_attention
    from ..evaluation.loading import load
    from ..evaluation.scores import place_of

    runs = [run for run in _at_one_rate(study) if study.status(run) == "done"]
    require_two_arms(study, runs)
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for run in runs:
        begin(f"{run.arm} seed {run.seed}")
        loaded = load(study.run_folder(run), device=device)
        kept = kept_attention(
            loaded,
            place_of(loaded, None),
            sequences=sequences,
            context=context or loaded.context,
            documents=documents,
            on_progress=on_progress,
        )
        source = str(Path(kept["kept"]).relative_to(study.folder))
        found.setdefault(run.arm, {})[run.seed] = {**kept, "source": source}
    endpoint = study.endpoint()
    ordered = {arm.name: found[arm.name] for arm in study.arms if arm.name in found}
    return analyse_attention(ordered, baseline=endpoint.baseline, confidence=endpoint.confidence)


def _at_one_rate(study: Study) -> list[RunKey]:
    """Of several learning rates the first: attention is compared between schedules, not rates."""
    return [run for run in study.runs if run.lr == study.rates[0]]


def require_two_arms(study: Study, runs: Sequence[RunKey]) -> None:
    arms = sorted({run.arm for run in runs})
    baseline = study.endpoint().baseline
    if len(arms) < 2 or baseline not in arms:
        have = f"only {', '.join(arms)} has" if arms else "none has"
        raise InputError(
            f"{study.folder}: a difference takes {baseline} and another arm, and {have} a finished run; "
            "let the study go on, or give a single run: prism attention RUN"
        )


def analyse_attention(
    runs: Mapping[str, Mapping[int, Mapping[str, Any]]], *, baseline: str, confidence: float
) -> dict[str, Any]:
    """From {arm: {seed: result of a run}} to figures by layer, unrounded. Pure.

    arms.NAME.layers: heads, and for each measure the mean over heads, one value a seed, and their mean.
    differences.NAME.layers: for each measure the paired difference with its t interval (pointwise: of one layer).
    """
    first = next(iter(next(iter(runs.values())).values()))
    arms = {
        name: {
            "seeds": list(by_seed),
            "sources": [run["source"] for run in by_seed.values()],
            "layers": [_layer([run["layers"][k] for run in by_seed.values()]) for k in range(len(first["layers"]))],
        }
        for name, by_seed in runs.items()
    }
    differences = {
        name: {"layers": _differences(runs[baseline], by_seed, confidence)}
        for name, by_seed in runs.items()
        if name != baseline
    }
    settings = {key: first["settings"][key] for key in ("sequences", "context", "documents", "text")}
    return {
        "baseline": baseline,
        "confidence": confidence,
        "settings": settings,
        "arms": arms,
        "differences": differences,
    }


def _layer(of_seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    entry: dict[str, Any] = {"heads": of_seeds[0]["heads"]}
    for measure in of_seeds[0]["mean"]:
        values = [layer["mean"][measure] for layer in of_seeds]
        entry[measure] = {"mean": float(np.mean(values)), "per_seed": values}
    return entry


def _differences(
    baseline: Mapping[int, Mapping[str, Any]], arm: Mapping[int, Mapping[str, Any]], confidence: float
) -> list[dict[str, Any]]:
    """By layer: {measure: {mean, low, high, n}} of arm - baseline; no interval below two pairs."""
    seeds = [seed for seed in arm if seed in baseline]
    layers = []
    for k, layer in enumerate(next(iter(arm.values()))["layers"]):
        entry: dict[str, Any] = {}
        for measure in layer["mean"]:
            values = [
                arm[seed]["layers"][k]["mean"][measure] - baseline[seed]["layers"][k]["mean"][measure] for seed in seeds
            ]
            entry[measure] = _interval(values, confidence)
        layers.append(entry)
    return layers


def _interval(values: Sequence[float], confidence: float) -> dict[str, Any]:
    if len(values) < MIN_PAIRS:
        return {"mean": values[0] if values else None, "low": None, "high": None, "n": len(values)}
    found = paired_t(values, confidence)
    return {"mean": float(found.mean), "low": float(found.low), "high": float(found.high), "n": len(values)}


def write_attention(folder: Path, found: Mapping[str, Any]) -> list[Path]:
    """Write attention.json and the figures; returns their paths. Older ones are replaced, as results.json is."""
    from .attention_figures import difference_bars, distance_curves
    from .figures import FIGURES, LIGHT, save_figure

    write_json(folder / ATTENTION, found)
    place = folder / FIGURES
    place.mkdir(exist_ok=True)
    written = [folder / ATTENTION]
    for name, draw in (("attention-distance", distance_curves), ("attention-difference", difference_bars)):
        written += save_figure(draw(found, LIGHT), place / name)
    return written


def read_attention(folder: Path) -> dict[str, Any] | None:
    """The attention.json of a study folder, None where it was not measured."""
    path = folder / ATTENTION
    return read_json(path) if path.exists() else None
