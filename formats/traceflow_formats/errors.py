"""One exception class with a stable code, and the list of codes.

A message says what is wrong, where (path, line, byte) and what to do. The code is the contract: scripts match
on it, so a code is never renamed.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know it: a search that is done at once does not import typing

if TYPE_CHECKING:
    from typing import Any

__all__ = ["ERROR_CODES", "TraceflowError"]

ERROR_CODES = frozenset(
    {
        "invalid_archive",
        "upload_too_large",
        "not_a_job_dir",
        "invalid_job",
        "invalid_trial",
        "trial_incomplete",
        "trial_too_large",
        "job_already_uploaded",
        "unrecognized_trace",
        "empty_trace",
        "invalid_trajectory",
        "invalid_input",
        "job_not_found",
        "trial_not_found",
        "dataset_not_found",
        "dataset_version_not_found",
        "task_not_found",
        "dataset_exists",
        "not_found",
        "not_captured",
        "store_not_found",
        "store_version",
        "store_corrupt",
        "store_conflict",
        "io_error",
        "missing_extra",
    }
)


class TraceflowError(Exception):
    """Input that is refused or a machine that failed: `code`, a one-line `message`, and `details` for programs."""

    def __init__(self, code: str, message: str, **details: Any) -> None:
        if code not in ERROR_CODES:
            raise ValueError(f"unknown error code {code!r}")
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = {k: v for k, v in details.items() if v is not None}

    def __str__(self) -> str:
        return f"error[{self.code}]: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:  # keeps code and details over a process boundary
        return (_rebuild, (self.code, self.message, self.details))


def _rebuild(code: str, message: str, details: dict[str, Any]) -> TraceflowError:
    return TraceflowError(code, message, **details)
