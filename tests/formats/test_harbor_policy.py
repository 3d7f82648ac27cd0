"""Harbor's error policy, one row per group of exception names."""

from __future__ import annotations

import pytest
from traceflow_formats.harbor import ErrorPolicy, PolicyOverride, policy_of, reward_valid
from traceflow_formats.harbor.policy import POLICIES


@pytest.mark.parametrize(
    ("name", "retry", "grade", "valid"),
    [
        ("EnvironmentStartTimeoutError", True, False, False),
        ("HealthcheckError", True, False, False),
        ("DownloadVerifierDirError", True, False, False),
        ("ApiUsageLimitError", True, True, False),
        ("RateLimitError", True, True, False),
        ("Timeout", True, True, False),
        ("BudgetExceededError", False, True, False),
        ("VerifierTimeoutError", False, True, False),
        ("RewardFileNotFoundError", False, True, False),
        ("CancelledError", False, False, False),
        ("AgentAuthenticationError", False, False, False),
        ("AgentTimeoutError", False, True, True),
        ("NonZeroAgentExitCodeError", False, True, True),
        ("ContentPolicyViolationError", False, True, True),
        ("AssertionError", True, True, True),
        ("", True, True, True),
    ],
)
def test_the_policy_of_an_exception(name: str, retry: bool, grade: bool, valid: bool) -> None:
    assert policy_of(name) == ErrorPolicy(retry, grade, valid)


def test_the_table_names_every_exception_once() -> None:
    sizes = {policy: sum(p == policy for p in POLICIES.values()) for policy in POLICIES.values()}
    assert sorted(sizes.values()) == [8, 10, 12, 12, 16]


def test_a_job_overrides_single_flags() -> None:
    override = PolicyOverride(has_valid_reward=True)
    assert policy_of("VerifierTimeoutError", override) == ErrorPolicy(False, True, True)
    assert policy_of("Unheard", PolicyOverride(should_retry=False)) == ErrorPolicy(False, True, True)


@pytest.mark.parametrize(
    ("rewards", "exceptions", "valid"),
    [
        (True, [], True),
        (False, [], False),
        (True, [("AgentTimeoutError", None)], True),
        (True, [("AgentTimeoutError", None), ("CancelledError", None)], False),
        (True, [("CancelledError", PolicyOverride(has_valid_reward=True))], True),
        (True, [("AgentTimeoutError", PolicyOverride(has_valid_reward=False))], False),
        (False, [("AgentTimeoutError", None)], False),
    ],
)
def test_a_reward_counts_if_every_exception_allows_it(
    rewards: bool, exceptions: list[tuple[str, PolicyOverride | None]], valid: bool
) -> None:
    assert reward_valid(rewards, exceptions) is valid
