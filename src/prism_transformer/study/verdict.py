"""The study in words: the verdict, and whether the study's ruler was calibrated.

Words for somebody who has never seen this tool: what was found, how large it is and how sure; then whatever limits it.
"""

from collections.abc import Mapping
from typing import Any

from ..wording import count, listed
from .decisions import NOT_CORRECTED
from .wording import level, percent, percent_digits, signed, tokens_factor, uniforms_that_do_as_well

Results = Mapping[str, Any]


def verdict(results: Results) -> dict[str, Any]:
    """{arm, decision, text, headline, explanation, caveats}: `text` is the other three as one paragraph."""
    arm, baseline = results["primary"], results["baseline"]
    if arm is None:
        return _no_primary(results)
    entry = results["differences"][arm]
    headline = _headline(arm, baseline, entry, results["endpoint"]["equivalence"])
    explanation = _explanation(baseline, entry)
    caveats = _caveats(results, entry)
    return {
        "arm": arm,
        "decision": entry["decision"],
        "text": " ".join([headline, *explanation, *caveats]),
        "headline": headline,
        "explanation": " ".join(explanation),
        "caveats": caveats,
    }


def _no_primary(results: Results) -> dict[str, Any]:
    headline = "No primary arm was named before the first run, so there is no verdict on a single arm."
    told = [f"{name}: {entry['decision'].replace('_', ' ')}" for name, entry in results["differences"].items()]
    explanation = (
        f"Each arm against {results['baseline']}, corrected for their number: {'; '.join(told)}." if told else ""
    )
    return {
        "arm": None,
        "decision": "cannot_tell",
        "text": f"{headline} {explanation}".strip(),
        "headline": headline,
        "explanation": explanation,
        "caveats": [],
    }


def _is_pending(entry: Mapping[str, Any]) -> bool:
    return any(run["status"] == "pending" for run in entry["left_out"])


def _headline(arm: str, baseline: str, entry: Mapping[str, Any], equivalence: float) -> str:
    match entry["decision"]:
        case "lower" | "higher":
            size = percent(abs(entry["relative"]["mean"]), sign=False)
            return f"{arm} ends with a {entry['decision']} validation loss than {baseline}, by {size}."
        case "equivalent":
            margin = f"{equivalence * 100:g} %"
            return (
                f"{arm} and {baseline} are equivalent here: they differ by less than {margin} of the validation loss."
            )
        case _ if _is_pending(entry):
            return f"There is no verdict on {arm} yet: the study is not finished."
        case _ if entry["low"] is None:
            return (
                f"There is no verdict on {arm}: a comparison with {baseline} needs at least 2 pairs of finished runs."
            )
        case _ if entry["withheld"]:
            return f"{arm} is not judged against {baseline}: {entry['reason']}."
        case _:
            return f"These runs cannot tell whether {arm} is better or worse than {baseline}."


def _explanation(baseline: str, entry: Mapping[str, Any]) -> list[str]:
    if entry["low"] is None:
        return []
    relative = entry["relative"]
    digits = percent_digits(relative["low"], relative["high"])
    mean, low, high = (percent(relative[key], digits) for key in ("mean", "low", "high"))
    nats = signed(entry["mean"])
    sentence = (
        f"The difference is {nats} nats per token, {mean} of the loss "
        f"({level(entry['confidence'])} interval {low} to {high})"
    )
    tokens = equivalent_tokens_text(entry["equivalent_tokens"], baseline)
    sentences = [f"{sentence}, {tokens}." if tokens else f"{sentence}."]
    is_open = entry["decision"] == "cannot_tell" and not entry["withheld"]
    if is_open and entry["planning"] and not _is_pending(entry):
        planning = entry["planning"]
        found = percent(planning["detectable_relative"], sign=False)
        ends = [planning["detectable_relative"] * planning[end] / entry["sd"] for end in ("sd_low", "sd_high")]
        known = " to ".join(percent(end, sign=False) for end in ends)
        pairs = count(entry["n"], "pair")
        sentences.append(
            f"With {pairs} of this spread, only a true difference of {found} or more is likely to be found; since the "
            f"spread is known from {pairs}, that may be {known}."
        )
    return sentences


def equivalent_tokens_text(tokens: Mapping[str, Any] | None, baseline: str) -> str | None:
    """Like training uniform on 0.8 % fewer tokens (between 2.9 % fewer and 1.4 % more); None where it says nothing."""
    if tokens is None:
        return None
    like = f"{'roughly ' if tokens['source'] == 'curve' else ''}like training {baseline} on"
    if not tokens["trusted"]:
        beyond = "more than twice" if tokens["factor"] > 2 else "less than half" if tokens["factor"] < 0.5 else None
        return f"{like} {beyond} the tokens" if beyond else None
    text = f"{like} {tokens_factor(tokens['factor'])} tokens"
    if tokens["low"] is None:
        return text
    return f"{text} (between {tokens_factor(tokens['low'])} and {tokens_factor(tokens['high'])})"


def _caveats(results: Results, entry: Mapping[str, Any]) -> list[str]:
    caveats = [_pairs_text(entry)]
    if entry["weak"] and entry["decision"] != "cannot_tell":
        caveats.append(f"{entry['n']} pairs are the least that a verdict can stand on: weak until more seeds agree.")
    look = results["endpoint"]["look"]
    if look > 1:
        caveats.append(
            f"This is look {look} at a study whose seeds were extended; interval and decision are corrected for it."
        )
    if entry["reason"] == NOT_CORRECTED:
        chance = _chance(results["endpoint"]["confidence"])
        caveats.append(
            f"The interval just excludes zero, but part of the {chance} chance of a false word is kept for later "
            "extensions."
        )
    if entry["decision"] == "equivalent" and (entry["low"] > 0 or entry["high"] < 0):
        caveats.append(
            "A difference is there, but it is smaller than what was declared to matter before the first run."
        )
    uniforms = _uniforms_text(results["uniforms"], entry)
    return caveats + ([uniforms] if uniforms else [])


def _chance(confidence: float) -> str:
    """What a confidence leaves to chance: 5 % of 0.95."""
    return f"{(1 - confidence) * 100:.3g} %"


def _pairs_text(entry: Mapping[str, Any]) -> str:
    text = f"{entry['n']} of {entry['planned']} planned pairs of runs were used"
    lost: dict[str, list[str]] = {}
    for run in entry["left_out"]:
        lost.setdefault(run["status"], []).append(f"{run['arm']} seed {run['seed']}")
    if not lost:
        return f"{text}."
    words = {"diverged": "diverged", "missing": "missing", "pending": "still to come"}
    return f"{text}; {'; '.join(f'{words[status]}: {listed(runs)}' for status, runs in lost.items())}."


def _uniforms_text(uniforms: Mapping[str, Any] | None, entry: Mapping[str, Any]) -> str | None:
    """Only "lower than every uniform" answers whether the shape matters, not only how wide the heads are."""
    if uniforms is None or entry["decision"] != "lower":
        return None
    against = uniforms["against"]
    if uniforms["lower_than_all"]:
        return f"It is lower than every uniform schedule that was measured ({listed(list(against))})."
    return uniforms_that_do_as_well(against)


def calibration(results: Results) -> dict[str, Any] | None:
    """{found, null_inside, null_coarse, text, arms}: does the study find what is there, and only that?

    null_coarse: nothing was seen where nothing is, by a comparison that would hardly have seen even the known effect.
    None without such arms.
    """
    names = {arm["role"]: name for name, arm in results["arms"].items() if arm["role"].startswith("calibration")}
    if not names:
        return None
    less, null_arm = names.get("calibration_less"), names.get("calibration_null")
    found, fewer = _found(results, less)
    inside, null = _null_inside(results, null_arm)
    coarse = _too_coarse(results, less, null_arm) if inside else None
    return {
        "found": found,
        "null_inside": inside,
        "null_coarse": coarse is not None,
        "text": " ".join(filter(None, [fewer, coarse or null])),
        "arms": list(names.values()),
    }


def _found(results: Results, arm: str | None) -> tuple[bool | None, str | None]:
    if arm is None:
        return None, None
    entry = results["differences"][arm]
    if entry["low"] is None:
        return None, f"Fewer tokens: {arm} has fewer than 2 pairs, so nothing can be said."
    tokens, full = results["arms"][arm]["tokens"], results["arms"][results["baseline"]]["tokens"]
    what = f"{results['baseline']} trained on {100 * (1 - tokens / full):.3g} % fewer tokens"
    size = percent(entry["relative"]["mean"])
    if entry["low"] > 0:
        return True, f"A known difference was found: {what} is worse ({size} of the loss), as it must be."
    return False, (
        f"A known difference was NOT found: {what} should be worse, and the interval ({size}) does not say so. "
        "This study is too small or too noisy for differences of that size."
    )


def _null_inside(results: Results, arm: str | None) -> tuple[bool | None, str | None]:
    if arm is None:
        return None, None
    entry = results["differences"][arm]
    if entry["low"] is None:
        return None, f"No difference: {arm} has fewer than 2 pairs, so nothing can be said."
    what, size = _other_seeds(results), percent(entry["relative"]["mean"])
    if entry["low"] <= 0 <= entry["high"]:
        noticed = entry["planning"] and percent(entry["planning"]["detectable_relative"], sign=False)
        coarse = f"; {noticed} or more would likely have been noticed" if noticed else ""
        return True, (
            f"Nothing was found where nothing is: {what} ({size}) is not told from {results['baseline']}{coarse}."
        )
    return False, (
        f"{what} ({size}) is told from {results['baseline']} although nothing differs. By chance that happens in "
        f"{_chance(entry['confidence'])} of studies; distrust any small difference of this one."
    )


def _too_coarse(results: Results, less: str | None, null: str | None) -> str | None:
    """Where the null arm would hardly have shown even what fewer tokens cost: that it says nothing, with both sizes."""
    if less is None or null is None:
        return None
    effect, entry = results["differences"][less]["relative"]["mean"], results["differences"][null]
    if effect is None or not entry["planning"] or entry["planning"]["detectable_relative"] <= effect:
        return None
    noticed = percent(entry["planning"]["detectable_relative"], sign=False)
    return (
        f"Too coarse to say that nothing is found where nothing is: {_other_seeds(results)} "
        f"({percent(entry['relative']['mean'])}) is not told from {results['baseline']}, but only {noticed} or more "
        f"would likely have been noticed, and fewer tokens came out at {percent(effect)}."
    )


def _other_seeds(results: Results) -> str:
    return f"{results['baseline']} from other initial seeds"
