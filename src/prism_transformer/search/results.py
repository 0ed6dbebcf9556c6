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
from .budget import busy_seconds
from .candidates import BASELINE, Candidate, widening
from .elimination import Judged, order
from .ladder import Round
from .search import Search, State, best_set
from .storage import Attempt
from .verdict import recommended, verdict


def analyse(search: Search, state: State) -> dict[str, Any]:
    """The content of results.json, as far as the search is."""
    base_heads = search.plan.recipe.model.heads
    rounds = [each for each in state.rounds if each.stage == "search"]
    in_set = best_set(search.candidates, rounds, state.judged) if any(j.leader for j in state.judged) else []
    choice = search.choice(in_set)
    final = None
    if state.recommended:  # and so the present round is the final one
        final = final_comparison(
            state.losses(),
            chosen=state.recommended,
            planned=len(state.current.seeds),
            confidence=search.plan.settings.confidence,
            equivalence=search.plan.settings.equivalence,
            uniforms=[each.name for each in search.candidates if each.is_uniform],
        )
    chosen = state.recommended
    taken = recommended(chosen, final, [each.name for each in search.candidates if each.in_space])
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
        "chosen": chosen,
        "chosen_heads": str(search.schedule(chosen)) if chosen else None,
        "why": choice.why(chosen) if chosen else None,
        "against": choice.against(chosen) if chosen else [],
        "recommended": taken,
        "recommended_heads": str(search.schedule(taken)) if taken else None,
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
    chosen: str,
    planned: int,
    confidence: float,
    equivalence: float,
    uniforms: Sequence[str],
) -> dict[str, Any]:
    """{differences, to_uniforms}: test losses of fresh seeds, judged as a comparison's are.

    The chosen schedule is judged alone against uniform, the others as a family (Holm). `to_uniforms` is the
    chosen schedule against the other uniforms that were trained.
    """
    endpoint = Endpoint(
        baseline=BASELINE,
        primary=None if chosen == BASELINE else chosen,
        planned_seeds=planned,
        confidence=confidence,
        equivalence=equivalence,
    )
    others = [name for name in losses if name not in (BASELINE, chosen)]
    families = [[chosen] if chosen != BASELINE and chosen in losses else [], others]
    differences: dict[str, Any] = {}
    for family in families:
        differences |= judge({name: _pairs(losses, name, BASELINE) for name in family}, endpoint)
    wider = [name for name in uniforms if name in losses and name not in (BASELINE, chosen)]
    known = chosen in losses
    against = {name: judge({name: _pairs(losses, chosen, name)}, endpoint)[name] for name in wider if known}
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


def write_results(search: Search, results: Mapping[str, Any]) -> None:
    write_json(search.folder / RESULTS, results)
