"""The runs of a study by arm and seed: one run stands in each cell."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..model.head_schedule import schedule_text
from . import equivalent_tokens
from .decisions import Pairs
from .learning_rates import candidates, leave_one_out, rates_of
from .measured import ArmInfo, Endpoint, Evaluation, RunResult, Status, usable
from .statistics import MIN_PAIRS, paired_t


class RunGrid:
    """Look-ups by arm and seed. With several learning rates, the run of a cell is the one chosen on the other seeds."""

    def __init__(self, arms: Sequence[ArmInfo], runs: Sequence[RunResult], endpoint: Endpoint) -> None:
        self.arms = {arm.name: arm for arm in arms}
        self.baseline = endpoint.baseline
        self.all_runs = list(runs)
        self.rates = rates_of(runs)
        chosen = leave_one_out(runs) if len(self.rates) > 1 else runs
        self.runs = {(run.arm, run.seed): run for run in chosen}
        self.seeds = sorted({run.seed for run in runs})

    def done(self, arm: str) -> dict[int, RunResult]:
        of_arm = ((seed, self.runs.get((arm, seed))) for seed in self.seeds)
        return {seed: run for seed, run in of_arm if run is not None and usable(run)}

    def losses(self, arm: str) -> dict[int, float]:
        return {seed: run.val_loss for seed, run in self.done(arm).items() if run.val_loss is not None}

    def status(self, arm: str, seed: int) -> Status:
        run = self.runs.get((arm, seed))
        if run is None:
            return "missing"
        return "diverged" if run.status == "done" and not usable(run) else run.status

    def pairs(self, arm: str, other: str | None = None) -> Pairs:
        """The arm beside the baseline, or beside `other`."""
        names = (arm, other or self.baseline)
        tables = {name: self._candidates(name) for name in names}
        common = [s for s in self.seeds if all(s in losses for of_arm in tables.values() for losses in of_arm.values())]
        left_out = [
            {"seed": seed, "arm": name, "status": status}
            for seed in self.seeds
            for name in names
            for status in self._lost(name, seed, tables[name])
        ]
        losses = [{seed: self.losses(name)[seed] for seed in common} for name in names]
        if len(self.rates) < 2:
            return Pairs(losses[0], losses[1], left_out, name=arm)
        own, its = (np.array([[of_rate[s] for s in common] for of_rate in tables[name].values()]) for name in names)
        return Pairs(losses[0], losses[1], left_out, (own, its), name=arm)

    def _candidates(self, arm: str) -> Mapping[float | None, Mapping[int, float]]:
        """rate -> seed -> loss: all runs among which the arm's choice is made."""
        if len(self.rates) < 2:
            return {None: self.losses(arm)}
        return candidates([run for run in self.all_runs if run.arm == arm]) or {None: {}}

    def _lost(self, arm: str, seed: int, losses: Mapping[float | None, Mapping[int, float]]) -> list[Status]:
        """What keeps a seed from being a pair: the statuses of its runs, each once however many rates have it."""
        if len(self.rates) < 2:
            return [] if seed in losses[None] else [self.status(arm, seed)]
        at_rate = {run.lr: run.status for run in self.all_runs if (run.arm, run.seed) == (arm, seed)}
        return list(dict.fromkeys(at_rate.get(rate, "missing") for rate in losses if seed not in losses[rate]))

    def arm_entry(self, arm: ArmInfo) -> dict[str, Any]:
        """heads, losses and speed of an arm; lists hold one value per seed, null where there is none."""
        done, losses = self.done(arm.name), self.losses(arm.name)
        values = list(losses.values())
        runs = [self.runs.get((arm.name, seed)) for seed in self.seeds]
        speeds = [run.tokens_per_second for run in done.values() if run.tokens_per_second]
        ratios = list(self.speed_ratios(arm.name).values())
        return {
            "heads": list(arm.heads),
            "schedule": schedule_text(arm.heads),
            "role": arm.role,
            "settings": dict(arm.settings),
            "val_loss": [losses.get(seed) for seed in self.seeds],
            "mean": float(np.mean(values)) if values else None,
            "sd": float(np.std(values, ddof=1)) if len(values) >= MIN_PAIRS else None,
            "n": len(values),
            "status": [self.status(arm.name, seed) for seed in self.seeds],
            "tokens": next((run.tokens for run in done.values()), None),
            "lr": [run.lr if run else None for run in runs],
            "sources": [run.source if run else "" for run in runs],
            "tokens_per_second": float(np.mean(speeds)) if speeds else None,
            "relative_speed": float(np.exp(np.mean(np.log(ratios)))) if ratios else None,
        }

    def speed_ratios(self, arm: str) -> dict[int, float]:
        """seed -> tokens/s of the arm over the baseline's, within a seed, so that the machine's drift cancels."""
        base, own = self.done(self.baseline), self.done(arm)
        return {
            seed: fast / slow
            for seed, run in own.items()
            if seed in base and (fast := run.tokens_per_second) and (slow := base[seed].tokens_per_second)
        }

    def slopes(self) -> tuple[equivalent_tokens.Slopes, equivalent_tokens.Source]:
        base = self.done(self.baseline)
        fewer = next((name for name, arm in self.arms.items() if arm.role == "calibration_less"), None)
        fewer_losses = (
            {seed: (loss, self.runs[fewer, seed].tokens) for seed, loss in self.losses(fewer).items()} if fewer else {}
        )
        tokens = next((run.tokens for run in base.values()), 0)
        curves = {seed: [(at.tokens, at.val_loss) for at in run.on_the_way] for seed, run in base.items()}
        return equivalent_tokens.baseline_slopes(self.losses(self.baseline), fewer_losses, tokens, curves)

    def curve(self, arm: str) -> list[dict[str, Any]]:
        """Validation loss on the way, over the seeds that have been evaluated at that step."""
        losses, at = self._by_step(arm)
        return [
            {
                "step": step,
                "tokens": at[step].tokens,
                "is_whole": at[step].is_whole,
                "mean": float(np.mean(list(of_step.values()))),
                "sd": float(np.std(list(of_step.values()), ddof=1)) if len(of_step) >= MIN_PAIRS else None,
                "n": len(of_step),
            }
            for step, of_step in losses.items()
        ]

    def difference_curve(self, arm: str, confidence: float) -> list[dict[str, Any]]:
        """Arm - baseline on the way, paired; pointwise intervals, for looking only: no decision is taken from them."""
        own, at = self._by_step(arm)
        base, _ = self._by_step(self.baseline)
        points = []
        for step in sorted(own.keys() & base.keys()):
            values = [own[step][seed] - base[step][seed] for seed in own[step].keys() & base[step].keys()]
            if len(values) >= MIN_PAIRS:
                interval = paired_t(values, confidence)
                mean, low, high = float(interval.mean), float(interval.low), float(interval.high)
                points.append(
                    {"step": step, "tokens": at[step].tokens, "mean": mean, "low": low, "high": high, "n": len(values)}
                )
        return points

    def _by_step(self, arm: str) -> tuple[dict[int, dict[int, float]], dict[int, Evaluation]]:
        """step -> seed -> loss, and step -> one of its evaluations."""
        losses: dict[int, dict[int, float]] = {}
        evaluations: dict[int, Evaluation] = {}
        for seed, run in self.done(arm).items():
            for at in run.curve:
                losses.setdefault(at.step, {})[seed] = at.val_loss
                evaluations[at.step] = at
        return dict(sorted(losses.items())), evaluations
