"""What a search has found: the ranking, the set that cannot be told from the best, and the final comparison.

The ranking is from the validation split and the seeds on which schedules were chosen, so its best looks better than it
is. The final comparison is from the test split and seeds that no choice has seen: its intervals are what they say.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..files import RESULTS, write_json
from ..study.decisions import Pairs, judge
from ..study.measured import Endpoint
from ..study.statistics import MIN_PAIRS
from ..study.wording import level, percent, signed, uniforms_that_do_as_well
from ..wording import count, listed
from .budget import busy_seconds
from .candidates import BASELINE, PRISM, Candidate, widening
from .elimination import Judged, order
from .ladder import Round
from .search import Search, State, not_worse
from .storage import Attempt


def analyse(search: Search, state: State) -> dict[str, Any]:
    """The content of results.json, as far as the search is."""
    base_heads = search.plan.recipe.model.heads
    rounds = [each for each in state.rounds if each.stage == "search"]
    in_set = not_worse(search.candidates, rounds, state.judged) if any(j.leader for j in state.judged) else []
    choice = search.choice(in_set)
    final = None
    if state.recommended:  # and so the present round is the final one
        final = final_comparison(
            state.losses(),
            recommended=state.recommended,
            planned=len(state.current.seeds),
            confidence=search.plan.settings.confidence,
            equivalence=search.plan.settings.equivalence,
            uniforms=[each.name for each in search.candidates if each.is_uniform],
        )
    results = {
        "name": search.file.name,
        "baseline": BASELINE,
        "is_finished": state.is_finished,
        "confidence": search.plan.settings.confidence,
        "space": search.plan.settings.space(search.plan.recipe.model).count,
        "candidates": len(search.candidates),
        "ranking": ranking(search.candidates, rounds, state.judged, base_heads),
        "set": [each.name for each in in_set],
        "drops_from": next((each.drops_from for each in reversed(state.judged) if each.leader), None),
        "winner": in_set[0].name if in_set else None,
        "recommended": state.recommended,
        "recommended_heads": str(search.schedule(state.recommended)) if state.recommended else None,
        "why": choice.why(state.recommended) if state.recommended else None,
        "against": choice.against(state.recommended) if state.recommended else [],
        "target": search.plan.target,
        "final": final,
        "cost": _cost(search, state),
    }
    return results | {"verdict": verdict(results)}


def ranking(
    candidates: Sequence[Candidate], rounds: Sequence[Round], judged: Sequence[Judged], base_heads: int
) -> list[dict[str, Any]]:
    """Best first: who came further, then the lower loss of the last round. Differences are to uniform on that round."""
    by_name = {each.name: each for each in candidates}
    dropped = {name: why for each in judged for name, why in each.dropped.items()}
    rows = []
    for name in order(list(by_name), judged):
        each = by_name[name]
        last = max((k for k, one in enumerate(judged) if name in one.standings), default=None)
        if last is None:
            continue
        standing = judged[last].standings[name]
        rows.append(
            {
                "name": name,
                "heads": str(each.schedule),
                "family": each.family,
                "in_space": each.in_space,
                "widening": widening(each.schedule, base_heads),
                "loss": standing.loss,
                "mean": standing.mean,
                "low": standing.low,
                "high": standing.high,
                "behind": standing.behind,
                "p": standing.p,
                "round": last + 1,
                "tokens": rounds[last].tokens,
                "seeds": len(judged[last].seeds),
                "dropped": dropped.get(name),
            }
        )
    return rows


def final_comparison(
    losses: Mapping[str, Mapping[int, float | None]],
    *,
    recommended: str,
    planned: int,
    confidence: float,
    equivalence: float,
    uniforms: Sequence[str],
) -> dict[str, Any]:
    """{differences, to_uniforms}: test losses of fresh seeds, judged as a comparison's are.

    The recommended schedule is judged alone against uniform, the others as a family (Holm). `to_uniforms` is the
    recommended schedule against the other uniforms that were trained.
    """
    endpoint = Endpoint(
        baseline=BASELINE,
        primary=None if recommended == BASELINE else recommended,
        planned_seeds=planned,
        confidence=confidence,
        equivalence=equivalence,
    )
    others = [name for name in losses if name not in (BASELINE, recommended)]
    families = [[recommended] if recommended != BASELINE and recommended in losses else [], others]
    differences: dict[str, Any] = {}
    for family in families:
        differences |= judge({name: _pairs(losses, name, BASELINE) for name in family}, endpoint)
    wider = [name for name in uniforms if name in losses and name not in (BASELINE, recommended)]
    known = recommended in losses
    against = {name: judge({name: _pairs(losses, recommended, name)}, endpoint)[name] for name in wider if known}
    return {
        "losses": {name: {str(seed): loss for seed, loss in of.items()} for name, of in losses.items()},
        "differences": differences,
        "to_uniforms": against,
    }


def _pairs(losses: Mapping[str, Mapping[int, float | None]], arm: str, other: str) -> Pairs:
    both = {
        seed: (loss, losses[other][seed])
        for seed, loss in losses[arm].items()
        if loss is not None and losses[other].get(seed) is not None
    }
    left_out = [
        {"seed": seed, "arm": name, "status": "diverged"}
        for name in (arm, other)
        for seed, loss in losses[name].items()
        if loss is None
    ]
    return Pairs(
        {s: a for s, (a, _) in both.items()}, {s: float(b or 0) for s, (_, b) in both.items()}, left_out, name=arm
    )


def _cost(search: Search, state: State) -> dict[str, Any]:
    """What the search has taken."""
    budget = search.ladder.budget
    return {
        "runs": len(state.ended),
        "diverged": sum(each.state == "diverged" for each in state.ended),
        "taken_up": sum(each.state == "lost" and _was_taken_up(each, state) for each in state.all_attempts),
        "tokens": sum(each.run.tokens for each in state.ended),
        "seconds": busy_seconds(each.interval(each.beat) for each in state.all_attempts),
        "workers": len({each.worker for each in state.all_attempts}),
        "budget": {
            "unit": budget.unit,
            "amount": budget.amount if math.isfinite(budget.amount) else None,
            "spent": state.spent,
        },
    }


def _was_taken_up(attempt: Attempt, state: State) -> bool:
    """Whether another attempt followed; one that came second to a run was given up at once."""
    return attempt.run in state.attempts and state.attempts[attempt.run].number > attempt.number


def verdict(results: Mapping[str, Any]) -> list[str]:
    """The result in sentences."""
    if results["winner"] is None or results["recommended"] is None:
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
    sentences.append(f"Recommended: {_called(results)}: {results['why']}.")
    sentences += [f"Mind: {against}." for against in results["against"]]
    final = results["final"]
    if not final or not final["differences"]:
        return sentences
    entry = final["differences"].get(results["recommended"])
    if all(each["n"] < MIN_PAIRS for each in final["differences"].values()):
        return [*sentences, "The budget ended before the final comparison had two pairs of runs, so it tells nothing."]
    if entry is not None:  # uniform itself has none
        sentences.append(_final_sentence(results["recommended"], entry, results["confidence"]))
    sentences += _better_in_the_end(results)
    if against := _open_uniforms(results):
        sentences.append(against)
    sentences += _better_references(results)
    return sentences


def _called(results: Mapping[str, Any]) -> str:
    name, heads = results["recommended"], results["recommended_heads"]
    return name if name == heads else f"{name} ({heads})"


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


def _better_in_the_end(results: Mapping[str, Any]) -> list[str]:
    """What else the final comparison has shown to be better than uniform; the advice where it is nothing at all."""
    differences, recommended = results["final"]["differences"], results["recommended"]
    better = [name for name, entry in differences.items() if entry["decision"] == "lower"]
    if not better:
        return ["The final comparison has shown no schedule to be better than uniform: nothing speaks for leaving it."]
    if recommended in better:
        return []
    return [f"Shown to be better than uniform in the final comparison: {listed(better)}."]


def _open_uniforms(results: Mapping[str, Any]) -> str | None:
    """Whether a wider uniform does as well: then the shape was not what helped."""
    entry = results["final"]["differences"].get(results["recommended"])
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


def write_results(search: Search, results: Mapping[str, Any]) -> None:
    write_json(search.folder / RESULTS, results)
