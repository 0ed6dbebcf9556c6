"""What a search has shown, in sentences, and what to take."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..study.statistics import MIN_PAIRS
from ..study.wording import level, percent, signed, uniforms_that_do_as_well
from ..wording import count, listed
from .candidates import BASELINE, PRISM


def recommended(chosen: str | None, final: Mapping[str, Any] | None, in_space: Sequence[str]) -> str | None:
    """What to take: the chosen schedule where it was shown to be better than uniform, else uniform.

    Where uniform itself was chosen, the best of the space that was shown to be better: those are then the one family
    that is judged. So of equal schedules another than uniform is recommended in at most 1 - confidence of searches.
    Where the final comparison tells nothing, the chosen one.
    """
    if chosen is None or final is None or not _tells_something(final):
        return chosen
    tested = in_space if chosen == BASELINE else [chosen]
    better = {name: entry["mean"] for name, entry in _better(final).items() if name in tested}
    return min(better, key=better.__getitem__, default=BASELINE)


def _better(final: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The differences of those that the final comparison has shown to be better than uniform."""
    return {name: entry for name, entry in final["differences"].items() if entry["decision"] == "lower"}


def _tells_something(final: Mapping[str, Any]) -> bool:
    """Whether any schedule has two pairs in the final comparison."""
    return any(entry["n"] >= MIN_PAIRS for entry in final["differences"].values())


def verdict(results: Mapping[str, Any]) -> list[str]:
    """The result in sentences."""
    if results["winner"] is None or results["chosen"] is None:
        return ["The search has not ended yet."]
    size, in_space = len(results["set"]), sum(row["in_space"] for row in results["ranking"])
    tried = f"{count(in_space, 'schedule')} tried ({results['space']:,} are legal)"
    tokens = max(row["tokens"] for row in results["ranking"] if row["name"] in results["set"])
    if size == 1:
        sentences = [f"Of {tried} {results['winner']} alone was not shown to be worse, at {tokens:,} tokens a run."]
    else:
        sentences = [
            f"{size} of {tried} cannot be told from the best at {tokens:,} tokens a run; the lowest loss had "
            f"{results['winner']}."
        ]
    holds_up = results["recommended"] == results["chosen"]
    word = "Recommended" if holds_up and results["chosen"] != BASELINE else "Chosen for the final comparison"
    sentences.append(f"{word}: {_called(results, 'chosen')}: {results['why']}.")
    sentences += [f"Mind: {against}." for against in results["against"]]
    final = results["final"]
    if not final or not final["differences"]:
        return sentences
    if not _tells_something(final):
        return [*sentences, "The budget ended before the final comparison had two pairs of runs, so it tells nothing."]
    entry = final["differences"].get(results["chosen"])
    if entry is not None:  # uniform itself has none
        sentences.append(_final_sentence(results["chosen"], entry, results["confidence"]))
    if against := _open_uniforms(results):
        sentences.append(against)
    sentences += _better_references(results)
    if results["recommended"] == BASELINE:
        sentences.append(_keep_uniform(results))
    elif not holds_up:
        shown = "the final comparison has shown it to be better than uniform"
        sentences.append(f"Recommended: {_called(results, 'recommended')}: {shown}.")
    return sentences


def _called(results: Mapping[str, Any], which: str) -> str:
    name, heads = results[which], results[f"{which}_heads"]
    return str(name) if name == heads else f"{name} ({heads})"


def _final_sentence(name: str, entry: Mapping[str, Any], confidence: float) -> str:
    if entry["n"] < MIN_PAIRS:
        return f"{name} has fewer than two pairs in the final comparison, which tells nothing about it."
    if entry["withheld"]:
        return f"{name} is not judged against uniform: {entry['reason']}."
    size, relative = signed(entry["mean"]), percent(entry["relative"]["mean"])
    interval = f"{signed(entry['low'])} to {signed(entry['high'])}"
    words = {
        "lower": f"{name} is better than uniform on the test split with fresh seeds",
        "higher": f"{name} is worse than uniform on the test split with fresh seeds",
        "equivalent": f"{name} and uniform are equivalent on the test split with fresh seeds",
        "cannot_tell": f"On the test split with fresh seeds {name} cannot be told from uniform",
    }
    said = f"{words[entry['decision']]}: {size} nats per token ({relative}), {level(confidence)} interval {interval}"
    return f"{said}, {entry['n']} of {count(entry['planned'], 'pair')}."


def _keep_uniform(results: Mapping[str, Any]) -> str:
    """The advice where what was put to the test has not been shown to be better."""
    better = list(_better(results["final"]))
    if not better:
        return "Recommended: keep uniform; the final comparison has shown no schedule to be better."
    return (
        f"Recommended: keep uniform. The final comparison has shown {listed(better)} to be better, but not as what was "
        "chosen for it: to be sure, compare again with other seeds."
    )


def _open_uniforms(results: Mapping[str, Any]) -> str | None:
    """Whether a wider uniform does as well: then the shape was not what helped."""
    entry = results["final"]["differences"].get(results["chosen"])
    against = results["final"]["to_uniforms"]
    if not against or entry is None or entry["decision"] != "lower":
        return None
    if all(each["decision"] == "lower" for each in against.values()):
        return f"It is also better than {listed(list(against))}, the best wider uniform."
    return uniforms_that_do_as_well(against)


def _better_references(results: Mapping[str, Any]) -> list[str]:
    """References outside of the space that ranked before all of it."""
    before = []
    for row in results["ranking"]:
        if row["in_space"]:
            break
        before.append(row["name"])
    named = [name for name in before if name != PRISM] + [name for name in before if name == PRISM]
    return [f"{listed(named)}, outside of the constraints, had a still lower loss in the search."] if named else []
