"""The report of a study: one HTML page that opens without network, and its tables as files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from ..files import read_json, write_text
from . import attention_figures, figures, paper
from .attention import read_attention
from .captions import captions
from .export import difference_rows, run_rows, write_tables
from .head_figure import study_matrix
from .table import DECISIONS
from .wording import percent, percent_digits, plain, rounded, signed, speed_caveat, tokens_factor
from .zero_shot import read_zero_shot

__all__ = ["write_report"]

REPRODUCTION = "reproduction.json"
"""Of a study that `prism reproduce` made: sections of {target, scale, paper_scale, caption, notes, columns, rows}."""

Context = Mapping[str, Any]
"""What the statistics do not know; every key may be left out:
title: of the page; created: date and time
settings: the recipe, a mapping of mappings; versions, machine: mappings of names to values
plan: rows {"what", "planned", "happened"}; notes: sentences on what was or was not used, warnings
"""


def write_report(folder: Path, results: Mapping[str, Any], context: Context | None = None) -> Path:
    """Write report.html and tables/ into `folder`; returns the page's path. An older report is replaced."""
    write_tables(folder / "tables", results)
    path = folder / "report.html"
    write_text(path, render(folder, results, context or {}))
    return path


def render(folder: Path, results: Mapping[str, Any], context: Context) -> str:
    """The page as text; links go to files of `folder` that are there."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    attention, zero_shot = read_attention(folder), read_zero_shot(folder) or {}
    environment.filters |= {
        "signed": signed,
        "plain": plain,
        "rounded": rounded,
        "percent": percent,
        "breakable": _breakable,
    }
    template = environment.get_template("report.html.j2")
    page = template.render(
        results=results,
        verdict=results["verdict"],
        primary=results["differences"].get(results["primary"]),
        rows=difference_rows(results),
        speed_caveat=speed_caveat(results),
        captions=captions(results),
        runs=[run | {"link": _link(folder, run["source"])} for run in run_rows(results)],
        figures=_figures(results) | _attention_figures(attention),
        attention=attention,
        beside_paper=_beside_paper(folder),
        zero_shot={name: {**task, "rows": _score_rows(task)} for name, task in zero_shot.items()},
        arms=_arms(results),
        cut_matrix=_cut_matrix(results, context),
        decisions={key: word for key, (word, _) in DECISIONS.items()},
        context={"title": None, "created": None, "notes": [], "plan": []} | dict(context),
        blocks=_blocks(context),
        rate_sentence=_rate_sentence(results, context),
        paper=paper.RESULTS,
        tokens_interval=_tokens_interval,
        relative_interval=_relative_interval,
        equal_time_interval=_equal_time_interval,
    )
    return re.sub(r"(?<=\d) %", "\u00a0%", page)


def _figures(results: Mapping[str, Any]) -> dict[str, Markup]:
    drawn = figures.study_figures(results, {})
    return {name: Markup(figures.page_svg(figure, name, label)) for name, (figure, label) in drawn.items()}


def _cut_matrix(results: Mapping[str, Any], context: Context) -> tuple[Markup, str]:
    width = (context.get("settings") or {}).get("model", {}).get("d_model")
    svg, caption = study_matrix([arm["heads"] for arm in results["arms"].values()], width)
    return Markup(svg), caption


def _beside_paper(folder: Path) -> list[dict[str, Any]]:
    """What a reproduction of the paper has set beside its numbers: tables as text."""
    path = folder / REPRODUCTION
    return list(read_json(path)["sections"]) if path.exists() else []


def _attention_figures(attention: Mapping[str, Any] | None) -> dict[str, Markup]:
    if attention is None:
        return {}
    curves = attention_figures.distance_curves(attention, {})
    bars = attention_figures.difference_bars(attention, {})
    return {
        "attention_distance": Markup(figures.page_svg(curves, "attention-distance", "Attention distance by layer")),
        "attention_difference": Markup(figures.page_svg(bars, "attention-difference", "Differences by layer")),
    }


def _score_rows(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a metric and arm of a zero-shot task, with the paired difference where there is one."""
    differences = {(each["metric"], each["arm"]): each for each in task["comparisons"]}
    metrics = next(iter(task["arms"].values()))["metrics"]
    return [
        {
            "metric": metric,
            "arm": name,
            "mean": arm["metrics"][metric]["mean"],
            "sd": arm["metrics"][metric]["sd"],
            "seeds": len(arm["seeds"]),
            "at_chance": arm["at_chance"].get(metric),
            "difference": differences.get((metric, name)),
        }
        for metric in metrics
        for name, arm in task["arms"].items()
    ]


def _arms(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arms whose schedule is known, each schedule drawn once."""
    drawn: dict[tuple[int, ...], dict[str, Any]] = {}
    for name, arm in results["arms"].items():
        heads = tuple(arm["heads"])
        if heads:
            entry = drawn.setdefault(
                heads, {"names": [], "svg": Markup(figures.staircase(heads)), "schedule": arm["schedule"]}
            )
            entry["names"].append(name)
    return list(drawn.values())


def _blocks(context: Context) -> list[dict[str, Any]]:
    """Settings, versions and machine as flat tables: {"title", "rows"}."""
    titles = {"settings": "Settings", "versions": "Versions", "machine": "Machine"}
    return [{"title": titles[key], "rows": _flat(context[key])} for key in titles if context.get(key)]


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in mapping.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(f"{prefix}{key}", str(value))]
    return rows


def _rate_sentence(results: Mapping[str, Any], context: Context) -> str:
    if results["learning_rates"]:
        return "Several learning rates: each arm at its own best, chosen for a seed on the other seeds."
    if not context.get("settings") and not any(any(arm["lr"]) for arm in results["arms"].values()):
        return "The learning rates are not known here, nor whether they were tuned for any arm."
    return "One learning rate for every arm; whether it was tuned for one of them is not known here."


def _relative_interval(entry: Mapping[str, Any]) -> str:
    return _shares(**entry["relative"])


def _equal_time_interval(entry: Mapping[str, Any]) -> str:
    time, loss = entry["equal_time"], entry["baseline_mean"]
    return _shares(**{key: time[key] / loss if time[key] is not None else None for key in ("mean", "low", "high")})


def _shares(mean: float | None, low: float | None, high: float | None) -> str:
    digits = percent_digits(low, high)
    return (
        percent(mean, digits)
        if low is None
        else f"{percent(mean, digits)} [{percent(low, digits)}, {percent(high, digits)}]"
    )


def _tokens_interval(entry: Mapping[str, Any]) -> str:
    tokens = entry["equivalent_tokens"]
    if tokens is None:
        return "–"
    if not tokens["trusted"]:
        return "beyond what the slope of the loss can tell"
    text = tokens_factor(tokens["factor"])
    if tokens["low"] is not None:
        text += f" [{tokens_factor(tokens['low'])} to {tokens_factor(tokens['high'])}]"
    return text + (", rough" if tokens["source"] == "curve" else "")


def _breakable(text: str) -> Markup:
    """Text that a narrow column may break after a comma and before an @."""
    return Markup(str(escape(text)).replace(",", ",<wbr>").replace("@", "<wbr>@"))


def _link(folder: Path, source: str) -> str | None:
    """A relative address of a file in the study folder, so that a number can be followed to where it was written."""
    return quote(source) if source and (folder / source).is_file() else None
