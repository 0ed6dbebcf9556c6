"""What `prism eval` prints: a block for each text and task, the differences, and what the numbers depend on."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ..study.wording import rounded
from ..wording import count

COLUMNS = 80
DECISIONS = {"higher": "higher", "lower": "lower", "cannot_tell": "cannot tell"}
Entry = Mapping[str, Any]


def text_lines(runs: Sequence[Entry]) -> list[str]:
    """Loss and bits per byte of each model, and its loss along the context."""
    scored = [run for run in runs if "text" in run]
    if not scored:
        return []
    first = scored[0]["text"]
    width = min(32, max(len(run["name"]) for run in scored))
    lines = [f"text: {first['origin']}, {first['text_bytes']:,} bytes", ""]
    lines.append(f"{'model':{width}}  {'nats/token':>10}  {'bits/byte':>9}  {'tokens':>12}  {'context':>7}")
    for run in scored:
        text = run["text"]
        bits = "–" if text["bits_per_byte"] is None else f"{text['bits_per_byte']:.4f}"
        for k, name in enumerate(textwrap.wrap(run["name"], width)):
            rest = (
                f"  {text['nats_per_token']:>10.4f}  {bits:>9}  {text['tokens']:>12,}  {text['context']:>7,}"
                if k == 0
                else ""
            )
            lines.append(f"{name:{width}}{rest}")
    return [*lines, "", *_position_lines(scored), ""]


def _position_lines(runs: Sequence[Entry]) -> list[str]:
    lines = ["nats per token by the tokens of the window that are seen before it:", ""]
    for run in runs:
        cells = [f"{_span(each)}:\u00a0{each['nats_per_token']:.3f}" for each in run["text"]["by_position"]]
        wrapped = textwrap.wrap("   ".join(cells), COLUMNS - 2, initial_indent="  ", subsequent_indent="  ")
        lines += [run["name"], *(line.replace("\u00a0", " ") for line in wrapped)]
    return lines


def _span(each: Entry) -> str:
    return f"{each['first']}" if each["first"] == each["last"] else f"{each['first']}–{each['last']}"


def task_lines(runs: Sequence[Entry]) -> list[str]:
    """A block a task: every metric of every model with its standard error, and what is to be said of it."""
    scored = [run for run in runs if "scores" in run]
    lines: list[str] = []
    for task in scored[0]["scores"] if scored else ():
        scores = {run["name"]: run["scores"][task] for run in scored}
        lines += [*_title(next(iter(scores.values()))), *_rows(scores), ""]
    return lines


def _title(score: Entry) -> list[str]:
    items = (
        count(score["items"], "item")
        if score["items"] == score["available"]
        else (f"first {score['items']:,} of {score['available']:,} items")
    )
    chance = f", guessing {score['chance']:.3f}" if score["chance"] is not None else ""
    parts = f", mean of {len(score['parts'])} tasks" if score.get("parts") else ""
    return textwrap.wrap(
        f"{score['task']}: {items}{parts}, {score['shots']}-shot, version {score['version']}{chance}", COLUMNS
    )


def _rows(scores: Mapping[str, Entry]) -> list[str]:
    """A line a model, a column a metric."""
    metrics = list(dict.fromkeys(metric for score in scores.values() for metric in score["metrics"]))
    names = {name: textwrap.wrap(name, 30) for name in scores}
    width = max(len(part) for parts in names.values() for part in parts)
    wide = {metric: max(17, *(len(_cell(score, metric)) for score in scores.values())) for metric in metrics}
    lines = ["  " + " " * width + "".join(f"  {metric:<{wide[metric]}}" for metric in metrics).rstrip()]
    for name, score in scores.items():
        cells = "".join(f"  {_cell(score, metric):<{wide[metric]}}" for metric in metrics).rstrip()
        lines += [f"  {part:{width}}{cells if k == 0 else ''}" for k, part in enumerate(names[name])]
    if any(score["at_chance"] for score in scores.values()):
        lines.append("  * chance-level: no better than guessing")
    cut = {score["truncated"] for score in scores.values() if score["truncated"]}
    if cut:
        many = count(min(cut), "item") if len(cut) == 1 else f"{min(cut):,} to {max(cut):,} items"
        lines.append(f"  cut on the left, being longer than the context: {many}")
    return lines


def _cell(score: Entry, metric: str) -> str:
    each = score["metrics"].get(metric)
    if each is None:
        return "–"
    error = "" if each["stderr"] is None else f" ± {rounded(each['stderr'], each['value'])}"
    return f"{rounded(each['value'])}{error}{'*' if metric in score['at_chance'] else ''}"


def difference_lines(runs: Sequence[Entry], comparisons: Sequence[Entry]) -> list[str]:
    """Each arm minus the first, paired; or why there is no pair."""
    if not comparisons:
        arms = [run["model"]["arm"] for run in runs]
        if len(arms) < 2:
            return []
        other = "no seed is in two arms, or the models read the text as other tokens"
        why = "these are seeds of one arm" if len(set(arms)) == 1 else other
        return [*textwrap.wrap(f"no differences: {why}", COLUMNS), ""]
    baseline = comparisons[0]["baseline"]
    lines = textwrap.wrap(f"differences to {baseline}, paired by item and seed:", COLUMNS)
    for arm in dict.fromkeys(each["arm"] for each in comparisons):
        lines += ["", *textwrap.wrap(arm, COLUMNS - 2, initial_indent="  ", subsequent_indent="  ")]
        for each in (each for each in comparisons if each["arm"] == arm):
            lines += _difference(each)
    open_ones = sum(each["decision"] == "cannot_tell" for each in comparisons)
    if open_ones:
        lines += ["", f"{open_ones} of {len(comparisons)} differences cannot be told from noise."]
    if all(each["seeds"] == 1 for each in comparisons):
        lines += ["", "One pair of runs: of these two trainings; the next two may differ otherwise."]
    if len(comparisons) > 1:
        told = f"{len(comparisons)} comparisons, not corrected for their number: 1 in 20 is told by chance alone."
        lines += ["", *textwrap.wrap(told, COLUMNS)]
    return [*lines, ""]


def _difference(each: Entry) -> list[str]:
    unit = "" if each["unit"] in ("share", "nats per token") else f" {each['unit']}"
    head = f"    {each['task']} {each['metric']}"
    value = f"{each['mean']:+.4f} [{each['low']:+.4f}, {each['high']:+.4f}]{unit}  {DECISIONS[each['decision']]}"
    detail = f"p {each['p']:.3g}, {count(each['items'], 'window' if each['task'] == 'text' else 'item')}"
    detail += f", {each['seeds']} seeds" if each["seeds"] > 1 else ""
    if "only_arm" in each:
        detail += f"; right alone: {each['only_arm']} and {each['only_baseline']} (McNemar)"
    if "ratio" in each:
        detail += f"; perplexity ×{each['ratio']:.4f}"
    return [f"{head:34}{value}" if len(head) < 34 else f"{head}\n{'':34}{value}", f"{'':34}{detail}"]


def footer_lines(runs: Sequence[Entry]) -> list[str]:
    """What every number depends on, and where it is kept."""
    lines = []
    for policy in dict.fromkeys(run["model"]["bos"] for run in runs):
        lines += textwrap.wrap(f"BOS: {policy}", COLUMNS)
    scored = [run for run in runs if "scores" in run]
    prompts = {task: score["prompt"] for run in scored for task, score in run["scores"].items()}
    for task, prompt in prompts.items():
        told = "; ".join(f"{key.removeprefix('doc_to_')} {value!r}" for key, value in prompt.items())
        lines += textwrap.wrap(f"prompt of {task}: {told}", COLUMNS, subsequent_indent="  ")
    if scored:
        note = "±: standard error over items; acc_norm: log-likelihoods divided by the characters of an ending"
        lines += textwrap.wrap(note, COLUMNS)
        lines.append(f"kept with every item: {scored[0]['kept']}")
        lines += [f"  and likewise for {len(scored) - 1} more"] if len(scored) > 1 else []
    return lines
