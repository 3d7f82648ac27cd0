"""Harbor's error policy: what an exception means for retry, grading and the validity of a reward.

An exception is looked up by the name of its type, as Harbor 0.26 does; an unknown name allows everything. A job
may override single flags for a type, and Harbor then stores the override with the exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["POLICIES", "UNKNOWN", "ErrorPolicy", "PolicyOverride", "policy_of", "reward_valid"]


class ErrorPolicy(NamedTuple):
    """Whether a trial with this exception is retried, graded, and has a reward that counts."""

    should_retry: bool
    should_grade: bool
    has_valid_reward: bool


class PolicyOverride(NamedTuple):
    """Flags that a job set for one type of exception; None leaves the table's value."""

    should_retry: bool | None = None
    should_grade: bool | None = None
    has_valid_reward: bool | None = None


UNKNOWN = ErrorPolicy(should_retry=True, should_grade=True, has_valid_reward=True)

# Harbor 0.26.0, one line per group of harness, sandbox, provider and verifier errors.
_TABLE = {
    ErrorPolicy(True, False, False): """
        EnvironmentStartTimeoutError SandboxBuildFailedError AgentSetupTimeoutError HealthcheckError
        SandboxLikelyOutOfMemoryError MemoryLimitExceededError SSHAccessError GKEExecStreamClosedError
        GKEPodNotFoundError RuntimeRequestError AddTestsDirError DownloadVerifierDirError""",
    ErrorPolicy(True, True, False): """
        ApiError ApiRateLimitError ApiInternalServerError ApiOverloadedError ApiConnectionClosedError
        ApiResponseStalledError UnknownApiError NetworkConnectionError ApiConnectionError ApiUsageLimitError
        RateLimitError InternalServerError ServiceUnavailableError APIConnectionError APIError Timeout""",
    ErrorPolicy(False, True, False): """
        UnsupportedModelParametersError BadRequestError UnprocessableEntityError UnsupportedParamsError
        APIResponseValidationError BudgetExceededError VerifierTimeoutError RewardFileNotFoundError
        RewardFileEmptyError VerifierOutputParseError""",
    ErrorPolicy(False, False, False): """
        AgentAuthenticationError ModelNotFoundError ApiProviderResourceNotFoundError AuthenticationError
        PermissionDeniedError NotFoundError ServiceOperationsUnsupportedError VercelScopeError DspyImportError
        MissingExtraError RegradeError CancelledError""",
    ErrorPolicy(False, True, True): """
        NonZeroAgentExitCodeError AgentTimeoutError ContextWindowExceededError OutputTokenExceededError
        ContextLengthExceededError OutputLengthExceededError AgentSafetyRefusalError ContentPolicyViolationError""",
}

POLICIES = MappingProxyType({name: policy for policy, names in _TABLE.items() for name in names.split()})


def policy_of(exception_type: str, override: PolicyOverride | None = None) -> ErrorPolicy:
    """The policy for an exception type, with the flags that the job overrode."""
    policy = POLICIES.get(exception_type, UNKNOWN)
    if override is None:
        return policy
    return ErrorPolicy(
        should_retry=_chosen(override.should_retry, policy.should_retry),
        should_grade=_chosen(override.should_grade, policy.should_grade),
        has_valid_reward=_chosen(override.has_valid_reward, policy.has_valid_reward),
    )


def _chosen(override: bool | None, default: bool) -> bool:
    return default if override is None else override


def reward_valid(has_rewards: bool, exceptions: Iterable[tuple[str, PolicyOverride | None]]) -> bool:
    """Whether a trial's reward counts: it has one, and every exception recorded (trial and steps) allows it."""
    return has_rewards and all(policy_of(name, override).has_valid_reward for name, override in exceptions)
