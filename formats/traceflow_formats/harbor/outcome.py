"""The outcome of a trial: a status that says what its reward, or the lack of one, means.

Rewards decide first and stay as they are. Without rewards four exception names have a status of their own, every
other exception and a verifier that gave none leave the trial indeterminate, and a trial that has neither was not
scored, which is no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from .records import TrialRecord

__all__ = ["STATUSES", "Outcome", "Status", "outcome_of"]

Status = Literal["SCORED", "SCORING_ERROR", "INFRASTRUCTURE_ERROR", "BUDGET", "CANCELLED", "INDETERMINATE", "UNSCORED"]
STATUSES: tuple[Status, ...] = (
    "SCORED",
    "SCORING_ERROR",
    "INFRASTRUCTURE_ERROR",
    "BUDGET",
    "CANCELLED",
    "INDETERMINATE",
    "UNSCORED",
)
_BY_EXCEPTION: Mapping[str, Status] = {
    "ScoringError": "SCORING_ERROR",
    "InfrastructureError": "INFRASTRUCTURE_ERROR",
    "ApiUsageLimitError": "BUDGET",
    "CancelledError": "CANCELLED",
}


class Outcome(NamedTuple):
    """`rewards` are all valid rewards by name, `primary` the one that counts, `metrics` the others.

    `exception_type` is the name of the exception that ended the trial: its own, else that of the last step with one.
    `reward_valid` is Harbor's word on whether the reward counts.
    """

    status: Status
    rewards: Mapping[str, int | float]
    primary_key: str | None
    primary: int | float | None
    exception_type: str | None
    reward_valid: bool

    @property
    def metrics(self) -> dict[str, int | float]:
        return {name: value for name, value in self.rewards.items() if name != self.primary_key}


def outcome_of(trial: TrialRecord) -> Outcome:
    """The outcome of a trial, single-step or multi-step.

    Only the trial's own verifier result scores it: rewards of single steps never become a reward of the trial.
    Without it the trial's own exception decides before those of steps, and of these the last, which ended the run.
    """
    rewards = trial.rewards
    exceptions = trial.exceptions
    decisive = trial.exception or (exceptions[-1] if exceptions else None)
    verified = trial.has_verifier_result or any(step.has_verifier_result for step in trial.steps)
    status: Status
    if rewards:
        status = "SCORED"
    elif decisive is not None:
        status = _BY_EXCEPTION.get(decisive.type, "INDETERMINATE")
    else:
        status = "INDETERMINATE" if verified else "UNSCORED"
    return Outcome(
        status=status,
        rewards=rewards.values,
        primary_key=rewards.primary_key,
        primary=rewards.primary,
        exception_type=(decisive.type or None) if decisive is not None else None,
        reward_valid=trial.reward_valid,
    )
