"""The page: what it says, that it is whole in itself, and that a browser shows it."""

import csv
import html.parser
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from prism_transformer.study.attention import analyse_attention, write_attention
from prism_transformer.study.measured import ArmInfo, Documents, RunResult
from prism_transformer.study.report import write_report
from prism_transformer.study.results import analyse, write_results
from prism_transformer.study.zero_shot import write_zero_shot

from .fake_study import arms, endpoint, run, runs

CONTEXT = {
    "title": "demo: 4 layers, d_model 64",
    "created": "2026-07-01",
    "settings": {"model": {"n_layers": 4}, "training": {"lr": 3e-3}},
    "versions": {"torch": "2.13.0"},
    "machine": {"cpu": "2 cores"},
    "plan": [{"what": "runs", "planned": "21", "happened": "20"}],
    "notes": ["The embedded corpus is technical English."],
}
VOID = {"meta", "link", "br", "wbr"}


class Page(html.parser.HTMLParser):
    """Text, addresses and ids of a page whose tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self._look(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(attrs)

    def _look(self, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key == "id":
                self.ids[value or ""] += 1
            if key in ("href", "src", "xlink:href"):
                self.addresses.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


def report(folder: Path, results: dict[str, Any], context: dict[str, Any] | None = None) -> Page:
    write_results(folder, results)
    return Page(write_report(folder, results, context).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    measured = runs(5)
    measured[10] = run(measured[10].arm, measured[10].seed, None, status="diverged")
    return analyse(arms(), measured, endpoint(5))


def test_the_page_says_what_was_measured(tmp_path: Path, results: dict[str, Any]) -> None:
    (tmp_path / "runs" / "prism" / "seed-0").mkdir(parents=True)
    (tmp_path / "runs" / "prism" / "seed-0" / "metrics.jsonl").write_text("{}")
    page = report(tmp_path, results, CONTEXT)
    verdict = results["verdict"]
    for sentence in (verdict["headline"], verdict["explanation"], *verdict["caveats"], results["calibration"]["text"]):
        assert sentence in page.text
    for sentence in (
        "One learning rate for every arm; whether it was tuned for one of them is not known here.",
        "demo: 4 layers",
        "2 cores",
        "training.lr",
        "diverged",
    ):
        assert sentence in page.text
    assert page.text.index(verdict["headline"]) < 200, "the verdict comes first"
    assert (
        "The paper's own numbers (arXiv 2606.27449), not measured here" in page.text and "3.3748 ± 0.0027" in page.text
    )
    assert "runs/prism/seed-0/metrics.jsonl" in page.addresses
    assert "1x1, 2x1, 4x2" in page.text, "a schedule may be broken after its commas"
    assert "prism wins" not in page.text.lower()


def test_the_page_needs_nothing_from_outside(tmp_path: Path, results: dict[str, Any]) -> None:
    page = report(tmp_path, results, CONTEXT)
    outside = [address for address in page.addresses if not address.startswith(("#", "data:"))]
    assert all((tmp_path / address).is_file() for address in outside), outside
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"<script|@import|url\((?!#)", text)
    assert set(re.findall(r"https?://[^\"' <]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert not [name for name, count in page.ids.items() if count > 1]
    assert not re.search(r"#0000[fc]\d|\bnan\b|\bNone\b", text), "a placeholder colour or an empty value is left"


BARE = {"uniform": (), "<b>&$x_1$": ()}


def _bare(losses: list[RunResult], primary: str | None, seeds: int) -> dict[str, Any]:
    infos = [
        ArmInfo(name=name, heads=heads, role="baseline" if name == "uniform" else "secondary")
        for name, heads in BARE.items()
    ]
    return analyse(infos, losses, endpoint(seeds, primary=primary))


@pytest.mark.parametrize("primary", [None, "<b>&$x_1$"])
@pytest.mark.parametrize("seeds", [1, 2])
def test_little_is_known_and_names_are_odd(tmp_path: Path, primary: str | None, seeds: int) -> None:
    losses = [run(arm, seed, 3.9 + seed / 10 + k / 100) for k, arm in enumerate(BARE) for seed in range(seeds)]
    page = report(tmp_path, _bare(losses, primary, seeds))
    assert "<b>&$x_1$" in page.text
    assert "The learning rates are not known here" in page.text


def test_no_run_has_finished(tmp_path: Path) -> None:
    losses = [run(arm, 0, None, status="pending") for arm in BARE]
    assert "the study is not finished" in report(tmp_path, _bare(losses, "<b>&$x_1$", 1)).text


def test_speeds_that_mean_nothing_give_no_estimate_at_equal_time(tmp_path: Path) -> None:
    results = analyse(arms(), runs(5), endpoint(5))
    assert "At equal time on this device: an estimate" in report(tmp_path, results).text
    results["arms"]["uniform, other initial seed"]["relative_speed"] = 1.14
    text = report(tmp_path, results).text.replace("\u00a0", " ")
    card = text[text.index("At equal tokens: the verdict") : text.index("pairs of runs were used")]
    sentence = (
        "At equal time on this device Arms with the same heads differ in speed by 14 % here, from other work on the "
        "machine, so speeds mean little and nothing is said at equal time."
    )
    assert sentence in card and "an estimate" not in text and "tokens/s; not trained" not in text
    rows = re.findall(r"<tr><td>prism</td>.*?</tr>", (tmp_path / "report.html").read_text("utf-8"), re.DOTALL)
    assert next(row for row in rows if "×" in row).endswith('<td class="n">–</td></tr>')
    on_the_way = re.findall(
        r'<td class="nowrap">prism</td>.*?</tr>', (tmp_path / "report.html").read_text("utf-8"), re.S
    )
    assert on_the_way and all(row.endswith('<td class="n">–</td></tr>') for row in on_the_way)


@pytest.mark.parametrize(("documents", "told"), [(1, "1 document,"), (9, "9 documents,"), (10, None)])
def test_too_few_documents_have_a_sentence_and_no_table(tmp_path: Path, documents: int, told: str | None) -> None:
    losses = [
        run(arm, seed, 3.9 + k / 100, documents=Documents([39.0 + k + n for n in range(documents)], [10] * documents))
        for k, arm in enumerate(("uniform", "prism"))
        for seed in range(3)
    ]
    text = report(tmp_path, analyse(arms(("uniform", "prism")), losses, endpoint(3))).text
    assert ("This one does" in text) == ("of them lower" in text) == (told is None)
    assert ("choice matters cannot be known." in text) == (told is not None)
    assert told is None or f"The validation text has {told} and an interval needs at least 10" in text


def test_captions_explain_dashes_and_what_adjusts_p(tmp_path: Path) -> None:
    text = report(tmp_path, analyse(arms(), runs(5), endpoint(5))).text.replace("\u00a0", " ")
    assert "uniform, 20 % fewer tokens has a dash: it is uniform on fewer tokens" in text
    assert "A dash for" not in text
    # the first look spends 4/5 of 5 %
    assert "p, adjusted, is held against 5 %: it is p × 1.25, since look 1 may spend only a part" in text
    assert "judged one by one and corrected for nothing." in text


def test_the_figure_of_heads_is_the_study_s_own(tmp_path: Path, results: dict[str, Any]) -> None:
    text = report(tmp_path, results, {"settings": {"model": {"d_model": 64}}}).text
    assert "1 head of 64" in text and "4 heads of 16" in text and "256" not in text
    assert "in an example of d_model 768" in report(tmp_path, results).text


def test_several_rates_have_a_table(tmp_path: Path) -> None:
    names = ("uniform", "prism")
    losses = [
        run(arm, seed, 3.9 + lr + seed / 100, lr=lr) for arm in names for seed in (0, 1, 2) for lr in (0.001, 0.002)
    ]
    page = report(tmp_path, analyse(arms(names), losses, endpoint(3)))
    assert "each arm at its own best" in page.text and "chosen for seeds" in page.text and "3 of 3" in page.text


def test_tables_are_files_unrounded(tmp_path: Path, results: dict[str, Any]) -> None:
    report(tmp_path, results)
    with (tmp_path / "tables" / "differences.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["arm"]: row for row in csv.DictReader(file)}
    assert float(rows["prism"]["low"]) == results["differences"]["prism"]["low"]
    assert rows["uniform"]["difference"] == "" and rows["prism"]["heads"] == "1x1,2x1,4x2"
    of_runs = json.loads((tmp_path / "tables" / "runs.json").read_text(encoding="utf-8"))
    assert len(of_runs) == 35 and of_runs[0]["val_loss"] == results["arms"]["uniform"]["val_loss"][0]
    latex = (tmp_path / "tables" / "differences.tex").read_text(encoding="utf-8")
    assert r"uniform, 20 \% fewer tokens & 4x4 & $" in latex and latex.count(r"\\") == 8
    assert latex.isascii()


def test_a_report_replaces_the_one_before(tmp_path: Path) -> None:
    bare = _bare([run(arm, 0, 3.9) for arm in BARE], None, 1)
    first = report(tmp_path, bare).text
    assert report(tmp_path, bare).text == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results.json", "tables"]


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
HOST = """<!doctype html><body style="margin:0">
<iframe src="report.html" style="width:1200px;height:900px"></iframe>
<iframe src="report.html" style="width:390px;height:844px"></iframe>
<pre id="found"></pre>
<script>
const light = colour => {
  const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(x => x / 255).map(
    x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (one, other) => {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
addEventListener("load", () => {
  const pages = [...document.querySelectorAll("iframe")].map(frame => frame.contentDocument);
  document.getElementById("found").textContent = JSON.stringify(pages.map(page => {
    const style = element => page.defaultView.getComputedStyle(element);
    const paper = style(page.body).backgroundColor;
    const lines = [...page.querySelectorAll("figure svg path[style*='--series-']")];
    return {
      wide: page.documentElement.scrollWidth, room: page.documentElement.clientWidth,
      headline: page.querySelector(".headline").getBoundingClientRect().bottom,
      figures: page.querySelectorAll("figure svg").length,
      small: Math.min(...[...page.querySelectorAll("figure svg text")].map(e => e.getBoundingClientRect().height)),
      paper: light(paper), ink: contrast(style(page.body).color, paper),
      faint: Math.min(...[...page.querySelectorAll(".faint, figcaption")].map(e => contrast(style(e).color, paper))),
      series: Math.min(...lines.map(line => style(line).stroke).filter(c => c != "none").map(c => contrast(c, paper))),
    };
  }));
});
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine: the page is not opened")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_browser_shows_it_wide_and_narrow(tmp_path: Path, results: dict[str, Any], theme: str) -> None:
    report(tmp_path, results, CONTEXT)
    host = tmp_path / "host.html"
    host.write_text(HOST, encoding="utf-8")
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    switches += [
        "--no-first-run",
        "--disable-component-update",
        "--enable-logging=stderr",
        "--virtual-time-budget=10000",
    ]
    switches += ["--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1700,1000"]
    switches += [
        f"--blink-settings=preferredColorScheme={int(theme == 'light')}",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    command = [str(BROWSER), *switches, "--dump-dom", host.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in shown.stderr, shown.stderr
    found = re.search(r'<pre id="found">(.*?)</pre>', shown.stdout)
    assert found is not None and found[1], shown.stderr
    desktop, phone = json.loads(found[1])
    assert (desktop["room"], phone["room"]) == (pytest.approx(1200, abs=20), pytest.approx(390, abs=20))
    assert desktop["wide"] <= desktop["room"] and phone["wide"] <= phone["room"]
    assert phone["headline"] < 400, "the verdict is read without scrolling"
    assert desktop["figures"] == 6 and phone["small"] >= 9
    assert (desktop["paper"] < 0.1) == (theme == "dark")
    # WCAG: 7 for the text, 4.5 for small print, 3 for lines
    assert desktop["ink"] > 7 and desktop["faint"] > 4.5 and desktop["series"] > 3


def test_what_losses_do_not_show_joins_the_page(tmp_path: Path, results: dict[str, Any]) -> None:
    """Dynamics from the curves themselves; zero-shot scores and attention where their files are."""
    (tmp_path / "plain").mkdir()
    plain = list(report(tmp_path / "plain", results, CONTEXT).ids)
    assert "zero-shot" not in plain and "attention" not in plain
    assert plain.index("verdict") < plain.index("schedules") < plain.index("arms") < plain.index("dynamics")

    folder = tmp_path / "whole"
    folder.mkdir()
    measures = ("distance", "distance_beyond_sink", "sink_share", "entropy")
    layers = [{"heads": 4, "mean": dict.fromkeys(measures, 123.456)}]
    settings = {"sequences": 8, "context": 64, "documents": "packed", "text": {}}
    run = {"layers": layers, "settings": settings, "source": "runs/a"}
    found = analyse_attention(
        {"uniform": {0: run, 1: run}, "prism": {0: run, 1: run}}, baseline="uniform", confidence=0.95
    )
    write_attention(folder, found)
    arm = {
        "seeds": [0],
        "metrics": {"acc": {"mean": 0.5432, "sd": None, "per_seed": [0.5432]}},
        "at_chance": {"acc": 1},
    }
    difference = {
        "metric": "acc",
        "arm": "prism",
        "mean": 0.0321,
        "low": -0.01,
        "high": 0.07,
        "p": 0.2,
        "unit": "share",
    }
    task = {
        "items": 1838, "available": 1838, "shots": 0, "version": 1.0, "chance": 0.5, "prompt": {}, "truncated": [0],
        "arms": {"uniform": arm, "prism": arm}, "comparisons": [difference | {"decision": "cannot_tell"}],
    }  # fmt: skip
    write_zero_shot(folder, "", {"piqa": task})
    page = report(folder, results, CONTEXT)
    assert all(figure in page.text for figure in ("123.46", "0.5432", "+0.0321", "chance-level in 1 of 1"))
    shown = list(page.ids)
    order = [shown.index(name) for name in ("dynamics", "zero-shot", "attention", "settings")]
    assert order == sorted(order)
    assert all((folder / name).exists() for name in ("zero_shot.json", "attention.json", "figures"))
