"""The types of a codex rollout that have no event of their own, and those that were renamed.

A silent type is known and says nothing that another record does not say; any other type is counted as unknown.
"""

from __future__ import annotations

__all__ = ["END_EVENTS", "SILENT_EVENTS", "SILENT_ITEMS", "SILENT_RECORDS"]

SILENT_RECORDS = frozenset(("world_state", "inter_agent_communication_metadata"))
SILENT_ITEMS = frozenset(
    ("additional_tools", "compaction", "compaction_summary", "compaction_trigger", "context_compaction",
     "ghost_snapshot", "other")
)  # fmt: skip
SILENT_EVENTS = frozenset(
    ("agent_reasoning_raw_content", "agent_reasoning_section_break", "apply_patch_approval_request",
     "background_event", "context_compacted", "deprecation_notice", "entered_review_mode",
     "exec_approval_request", "exec_command_begin", "exited_review_mode", "image_generation_begin",
     "image_generation_end", "item_started", "mcp_startup_complete", "mcp_startup_update", "mcp_tool_call_begin",
     "patch_apply_begin", "plan_update", "session_configured", "shutdown_complete", "thread_goal_updated",
     "thread_name_updated", "thread_settings_applied", "turn_diff", "undo_completed", "undo_started",
     "view_image_tool_call", "web_search_begin", "web_search_end")
)  # fmt: skip
END_EVENTS = {  # the end events of tools before there were items -> the type of the item
    "exec_command_end": "command_execution",
    "mcp_tool_call_end": "mcp_tool_call",
    "patch_apply_end": "file_change",
}
