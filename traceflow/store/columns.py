"""Where each column of events.parquet stands in a row that is being made: a row is a list, and lists are fast.

Numbers that a compiler can see are as fast as those that stand in the code; a test holds that they are the places of
`schema.EVENTS`.
"""

from __future__ import annotations

from typing import Final

JOB_ID: Final = 0
TRIAL_ID: Final = 1
SEQ: Final = 2
TYPE: Final = 3
TIMESTAMP: Final = 4
SESSION_ID: Final = 5
AGENT_ID: Final = 6
PARENT_TOOL_CALL_ID: Final = 7
STEP_ID: Final = 8
STEP_NAME: Final = 9
MESSAGE_ID: Final = 10
MODEL: Final = 11
TOOL_CALL_ID: Final = 12
CALL_SEQ: Final = 13
TOOL_NAME: Final = 14
KIND: Final = 15
STATUS: Final = 16
TITLE: Final = 17
TEXT: Final = 18
TEXT_PARTS: Final = 19
RAW_INPUT: Final = 20
EXIT_CODE: Final = 21
DURATION_MS: Final = 22
SCOPE: Final = 23
USAGE_SOURCE: Final = 24
PROMPT_TOKENS: Final = 25
COMPLETION_TOKENS: Final = 26
CACHED_TOKENS: Final = 27
COST_USD: Final = 28
FATAL: Final = 29
DELTA: Final = 30
INJECTED: Final = 31
COMPACTION: Final = 32
ABANDONED: Final = 33
COPIED: Final = 34
RETRIED: Final = 35
REST: Final = 36
