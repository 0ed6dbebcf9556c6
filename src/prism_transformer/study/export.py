"""The tables of a study as files: csv and json unrounded, LaTeX as a paper prints them."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import write_text
from .wording import plain, signed

Row = dict[str, Any]


def difference_rows(results: Mapping[str, Any]) -> list[Row]:
    """One row an arm: its loss, its paired difference and what was decided."""
    rows = []
    for name, arm in results["arms"].items():
        entry = results["differences"].get(name, {})
        tokens, time = entry.get("equivalent_tokens") or {}, entry.get("equal_time") or {}
        rows.append(
            {
                "arm": name,
                "heads": arm["schedule"],
                "settings": "; ".join(f"{key}={value}" for key, value in arm["settings"].items()),
                "role": arm["role"],
                "val_loss_mean": arm["mean"],
                "val_loss_sd": arm["sd"],
                "runs": arm["n"],
                "difference": entry.get("mean"),
                "low": entry.get("low"),
                "high": entry.get("high"),
                "confidence": entry.get("confidence"),
                "pairs": entry.get("n"),
                "planned": entry.get("planned"),
                "decision": entry.get("decision"),
                "p": entry.get("p"),
                "p_adjusted": entry.get("p_adjusted"),
                "equivalent_tokens": tokens.get("factor"),
                "equivalent_tokens_low": tokens.get("low"),
                "equivalent_tokens_high": tokens.get("high"),
                "difference_at_equal_time_estimate": time.get("mean"),
                "relative_speed": arm["relative_speed"],
            }
        )
    return rows


def run_rows(results: Mapping[str, Any]) -> list[Row]:
    """One row a run, with the file that its loss is from."""
    return [
        {
            "arm": name,
            "seed": seed,
            "status": arm["status"][k],
            "val_loss": arm["val_loss"][k],
            "difference": results["differences"].get(name, {}).get("per_seed", {}).get(str(seed)),
            "lr": arm["lr"][k],
            "source": arm["sources"][k],
        }
        for name, arm in results["arms"].items()
        for k, seed in enumerate(results["seeds"])
    ]


def write_tables(folder: Path, results: Mapping[str, Any]) -> list[Path]:
    """Write differences and runs as csv and json, and the differences as LaTeX, into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"differences.tex": latex(results)}
    for name, rows in (("differences", difference_rows(results)), ("runs", run_rows(results))):
        texts[f"{name}.csv"] = _csv(rows)
        texts[f"{name}.json"] = json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def _csv(rows: Sequence[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def latex(results: Mapping[str, Any]) -> str:
    """A booktabs table of the differences; the caption says what the numbers are."""
    confidence = next(
        (entry["confidence"] for entry in results["differences"].values()), results["endpoint"]["confidence"]
    )
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\caption{Validation loss (nats per token, mean $\pm$ sd over seeds) and paired difference to "
        rf"{_tex(results['baseline'])} with its {confidence * 100:.4g}\,\% interval; negative is better.}}",
        r"\begin{tabular}{llrrrl}",
        r"\toprule",
        r"arm & heads & loss & difference & pairs & decision \\",
        r"\midrule",
    ]
    for name, arm in results["arms"].items():
        entry = results["differences"].get(name)
        loss = (
            rf"${_tex(plain(arm['mean']))} \pm {_tex(plain(arm['sd']))}$"
            if arm["sd"] is not None
            else _tex(plain(arm["mean"]))
        )
        cells = [_tex(name), _tex(arm["schedule"]), loss, *_latex_difference(entry)]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def _latex_difference(entry: Mapping[str, Any] | None) -> list[str]:
    if entry is None:
        return ["", "", "baseline"]
    difference = f"${_tex(signed(entry['mean']))}$"
    if entry["low"] is not None:
        difference += f" $[{_tex(signed(entry['low']))}, {_tex(signed(entry['high']))}]$"
    return [difference, f"{entry['n']}/{entry['planned']}", entry["decision"].replace("_", " ")]


def _tex(text: str) -> str:
    """Text without LaTeX's special characters; the minus and the dash as LaTeX writes them."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "-", "–": "--"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text)
