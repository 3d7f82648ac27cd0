"""Harbor's records: jobs, trials, locks, rewards, outcomes, analyses, and the layout of a job folder (0.26).

`read_job` and `read_trial` take the bytes of a record and give what an importer needs of it; `outcome_of` and
`trial_cost` say what it means. Nothing here opens a file, apart from `read_reward_folder`.
"""

from .analysis import (
    Analysis,
    Artifact,
    Check,
    Reading,
    read_analysis,
    read_check_report,
    read_check_result,
    read_manifest,
)
from .cost import Cost, Evolve, evolve_of, read_evolve, trial_cost
from .document import RecordWarning
from .job import (
    DatasetRef,
    JobLock,
    JobRecord,
    ReportedTotals,
    TrialSums,
    read_job,
    read_job_lock,
    reported_totals,
    totals_differ,
)
from .outcome import STATUSES, Outcome, Status, outcome_of
from .policy import ErrorPolicy, PolicyOverride, policy_of, reward_valid
from .records import (
    AgentResult,
    Failure,
    StepRecord,
    Timing,
    TrialConfig,
    TrialLock,
    TrialRecord,
    Usage,
    read_trial,
    read_trial_config,
    read_trial_lock,
)
from .rewards import RewardFile, Rewards, parse_reward_files, read_reward_folder

__all__ = [
    "STATUSES",
    "AgentResult",
    "Analysis",
    "Artifact",
    "Check",
    "Cost",
    "DatasetRef",
    "ErrorPolicy",
    "Evolve",
    "Failure",
    "JobLock",
    "JobRecord",
    "Outcome",
    "PolicyOverride",
    "Reading",
    "RecordWarning",
    "ReportedTotals",
    "RewardFile",
    "Rewards",
    "Status",
    "StepRecord",
    "Timing",
    "TrialConfig",
    "TrialLock",
    "TrialRecord",
    "TrialSums",
    "Usage",
    "evolve_of",
    "outcome_of",
    "parse_reward_files",
    "policy_of",
    "read_analysis",
    "read_check_report",
    "read_check_result",
    "read_evolve",
    "read_job",
    "read_job_lock",
    "read_manifest",
    "read_reward_folder",
    "read_trial",
    "read_trial_config",
    "read_trial_lock",
    "reported_totals",
    "reward_valid",
    "totals_differ",
    "trial_cost",
]
