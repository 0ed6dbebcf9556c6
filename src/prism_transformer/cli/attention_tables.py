"""What `prism attention` prints: a line a layer, with a bar for the distance."""

import textwrap
from collections.abc import Mapping
from typing import Any

from ..study.wording import level
from ..wording import count

COLUMNS = 80
BAR = 16
NOTE = (
    "distance: mean tokens that attention looks back, over heads and the queries of the last half of each window "
    "(paper, equation 1); beyond 0: the same without position 0; at 0: share of the attention on position 0; "
    "entropy: of the attention weights, in nats."
)


def run_lines(run: Mapping[str, Any], *, by_head: bool) -> list[str]:
    """One model, layer by layer."""
    settings, layers = run["settings"], run["layers"]
    step = f", step {run['model']['step']:,}" if run["model"]["step"] is not None else ""
    lines = textwrap.wrap(f"{run['name']}{step}", COLUMNS)
    told = (
        f"{count(run['sequences'], 'window')} of {settings['context']:,} tokens, documents {settings['documents']}; "
        f"{settings['text']['origin']}"
    )
    lines += [*textwrap.wrap(told, COLUMNS), ""]
    lines.append(f"{'layer':>5}  {'heads':>5}  {'distance':>8}  {'beyond 0':>8}  {'at 0':>6}  {'entropy':>7}")
    longest = max(layer["mean"]["distance"] for layer in layers)
    for number, layer in enumerate(layers, start=1):
        bar = "█" * round(BAR * layer["mean"]["distance"] / longest) if longest > 0 else ""
        lines.append(f"{number:>5}  {layer['heads']:>5}  {_cells(layer['mean'])}  {bar}".rstrip())
        if by_head:
            for head in range(layer["heads"]):
                of_head = {name: layer[name][head] for name in layer["mean"]}
                lines.append(f"{'':5}  {f'#{head + 1}':>5}  {_cells(of_head)}")
    return [*lines, "", *textwrap.wrap(NOTE, COLUMNS), f"kept: {run['kept']}", ""]


def _cells(values: Mapping[str, float]) -> str:
    return (
        f"{values['distance']:>8.1f}  {values['distance_beyond_sink']:>8.1f}  {values['sink_share']:>6.3f}  "
        f"{values['entropy']:>7.3f}"
    )


def study_lines(found: Mapping[str, Any]) -> list[str]:
    """D_l of the baseline and each arm, and the paired difference in every layer."""
    settings, baseline = found["settings"], found["baseline"]
    windows = count(settings["sequences"], "window")
    lines = [f"{windows} of {settings['context']:,} tokens, documents {settings['documents']}"]
    base = found["arms"][baseline]["layers"]
    for name, entry in found["differences"].items():
        own = found["arms"][name]["layers"]
        pairs = entry["layers"][0]["distance"]["n"]
        title = f"{name} minus {baseline}, attention distance in tokens, {count(pairs, 'pair')} of runs"
        lines += ["", *textwrap.wrap(title, COLUMNS), ""]
        interval = f"{level(found['confidence'])} interval"
        lines.append(f"{'layer':>5}  {'heads':>7}  {'baseline':>8}  {'arm':>8}  {'difference':>10}  {interval}")
        for number, (b, a, each) in enumerate(zip(base, own, entry["layers"], strict=True), start=1):
            difference = each["distance"]
            heads = f"{b['heads']}→{a['heads']}" if b["heads"] != a["heads"] else str(a["heads"])
            shown = "–" if difference["mean"] is None else f"{difference['mean']:+.2f}"
            interval = "" if difference["low"] is None else f"[{difference['low']:+.2f}, {difference['high']:+.2f}]"
            lines.append(
                f"{number:>5}  {heads:>7}  {b['distance']['mean']:>8.2f}  {a['distance']['mean']:>8.2f}  "
                f"{shown:>10}  {interval}".rstrip()
            )
    note = (
        "Intervals are of one layer each, over seeds; of twenty layers, one is expected to leave zero out by chance. "
        "Distance beyond position 0, its share and the entropy are in attention.json."
    )
    return [*lines, "", *textwrap.wrap(note, COLUMNS)]
