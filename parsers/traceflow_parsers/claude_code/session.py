"""Claude Code's session files: `<session id>.jsonl`, a tree of rows, and one more file for each subagent.

Rows of subagents stand in files of their own (2.1: `<session id>/subagents/`, 2.0: beside the main file), in the
main file (1.0), or in both; a row counts once. The reader hands over the main file first, so that the results of
the calls that spawned them name their agents (`toolUseResult.agentId`) before their files come.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from ..contract import Line
from ..facts import as_text, count
from .history import Branch, History
from .messages import as_blocks, attached_picture, attachment_text, compaction_facts, is_prompt, joined
from .parser import NOT_AN_ERROR, SYNTHETIC, ClaudeParser

__all__ = ["ClaudeSession"]

# Records that are the harness's own bookkeeping: nothing in them was said to or by the model.
QUIET = frozenset(
    {
        "agent-color", "agent-name", "agent-setting", "ai-title", "attribution-snapshot", "content-replacement",
        "custom-title", "file-history-snapshot", "last-prompt", "mode", "permission-mode", "pr-link", "progress",
        "queue-operation", "speculation-accept", "summary", "tag", "task-summary", "worktree-state",
    }
)  # fmt: skip
SYSTEM = frozenset(
    {
        "agents_killed", "api_metrics", "away_summary", "bridge_status", "informational", "local_command",
        "memory_saved", "microcompact_boundary", "permission_retry", "scheduled_task_fire", "stop_hook_summary",
        "turn_duration",
    }
)  # fmt: skip
_NEVER = 1 << 62
_PARSED = Line.PARSED


class ClaudeSession(ClaudeParser):
    """One session with its subagents. `history` is what a first pass of the main file found."""

    source = "session"

    def __init__(self, history: History | None = None) -> None:
        super().__init__()
        self._history = history
        self._broken = history.broken if history is not None else None
        self._straight = history is not None and not history.broken and not history.copied
        self._links: dict[str, str] = {}  # agent id -> the call that spawned it
        self._seen: set[int] = set()  # hashes of (agent, uuid) of all rows
        self._here: set[int] = set()  # those of the subagent's file in hand
        self._own_file = False  # a subagent's file is in hand
        self._alone = False  # ... and it is all there is: its agent is the main one
        self._warmups: set[str | None] = set()
        self._met: set[str | None] = set()  # subagents that have spoken
        self._chains = 0
        self._tips: dict[int, str] = {}  # hash of a row of a subagent without id -> the id made for it
        self._branch: Branch | None = None
        self._withdrawn: dict[int, int] = {}  # branch -> its first abandoned line
        self._copied = False
        self._edge = _NEVER  # the next line at which a branch or the copied beginning begins or ends

    # -- files -------------------------------------------------------------------------------------------

    def start_part(self) -> None:
        info = self.part.info
        self._own_file = self.part.agent_id is not None
        self._alone = info.get("alone") is True
        self._seen |= self._here
        self._here = set()
        self.emit.abandoned = self.emit.copied = self._copied = False
        self._branch = None
        self._edge = _NEVER
        if self._own_file:
            if self.part.parent_call is None:
                self._introduce(self.part.agent_id)
        else:
            spawned = info.get("spawned")
            if isinstance(spawned, Mapping):
                self._links.update(spawned)
            if self._history is not None:
                self._edge = 0

    def end_part(self) -> None:
        self.flush_boundary()
        self.settle_all()

    # -- rows --------------------------------------------------------------------------------------------

    def record(self, record: dict[str, Any]) -> Line:
        kind = record.get("type")
        emit, report = self.emit, self.report
        if report.line >= self._edge:
            self._cross(report.line)
        side = False
        if not self._own_file and not self._alone:
            side = record.get("isSidechain") is True
            if side:
                self._speak_for(record)
            elif emit.agent_id is not None:
                emit.agent(None)
                emit.abandoned = self._is_withdrawn()
        uuid = record.get("uuid")
        if type(uuid) is str:
            if self._straight and emit.agent_id is None:
                mark = hash(uuid)
                if mark in self._seen:
                    return self._replayed()
                self._seen.add(mark)
                emit.copied = "forkedFrom" in record
            elif not self._is_new(uuid, record):
                return Line.DUPLICATE
        if report.version is None or emit.session_id is None:
            self._identify(record)
        if kind == "assistant" or kind == "user":
            message = record.get("message")
            if type(message) is not dict:
                return Line.UNKNOWN
            if self._branch is not None and not side and not emit.abandoned and is_prompt(record):
                self._withdrawn[self._branch.first] = report.line
                emit.abandoned = True
            if kind == "assistant":
                self._assistant(record, message)
            else:
                self._user(record, message)
            return _PARSED
        if kind == "attachment":
            return self._attachment(record)
        if kind == "system":
            return self._system(record)
        return Line.PARSED if type(kind) is str and kind in QUIET else Line.UNKNOWN

    def _identify(self, record: dict[str, Any]) -> None:
        report = self.report
        if report.version is None:
            report.version = as_text(record.get("version"))
        if self.emit.session_id is None:
            found = as_text(self.part.info.get("session_id")) or as_text(record.get("sessionId"))
            self.emit.session_id = report.session_id = found

    def _replayed(self) -> Line:
        self.report.warn("replayed_row", "a row that was written again was left out")
        return Line.DUPLICATE

    def _is_new(self, uuid: str, record: dict[str, Any]) -> bool:
        """Whether the row has not been read yet; tells a row without its parent and a copied one as well."""
        emit, seen = self.emit, self._seen
        agent = emit.agent_id
        mark = hash(uuid) if agent is None else hash((agent, uuid))
        copied = self._copied
        if self._own_file:
            if mark in seen and mark not in self._here:
                return False  # it stands in the main file as well
            seen = self._here
            copied = hash(uuid) in self._seen  # the main agent's
        if mark in seen:
            self._replayed()
            return False
        seen.add(mark)
        if agent is not None and not copied and "requestId" in record:
            message = record.get("message")
            copied = type(message) is dict and self.is_main_call(message.get("id"))
        emit.copied = copied or "forkedFrom" in record
        if self._broken is None or self._own_file:
            parent = record.get("parentUuid")
            if type(parent) is str:
                above = hash(parent) if agent is None else hash((agent, parent))
                if above not in self._seen and above not in self._here and hash(parent) not in self._seen:
                    self.report.warn("broken_parent", f"the parent {parent[:40]} is not in the file")
        elif self._broken and self.report.line in self._broken:
            self.report.warn("broken_parent", f"the parent {as_text(record.get('parentUuid'))} is not in the file")
        return True

    # -- branches and copies -----------------------------------------------------------------------------

    def _cross(self, line: int) -> None:
        """A line where a branch beside the active one, or the copied beginning, begins or ends."""
        history = self._history
        assert history is not None
        branches, edges = history.branches, [_NEVER]
        at = bisect_right(branches, line, key=lambda branch: branch.first) - 1
        self._branch = None
        if at >= 0 and line <= branches[at].last:
            self._branch = branches[at]
            edges.append(branches[at].last + 1)
            above = bisect_right(branches, branches[at].parent, key=lambda branch: branch.first) - 1
            if above >= 0 and branches[at].first not in self._withdrawn:
                since = self._withdrawn.get(branches[above].first, _NEVER)
                if since <= branches[at].parent <= branches[above].last:
                    self._withdrawn[branches[at].first] = branches[at].first
        if at + 1 < len(branches):
            edges.append(branches[at + 1].first)
        self._copied = line <= history.copied
        if self._copied:
            edges.append(history.copied + 1)
        self._edge = min(edges)
        self.emit.abandoned = self._is_withdrawn()

    def _is_withdrawn(self) -> bool:
        return self._branch is not None and self._branch.first in self._withdrawn

    # -- subagents ---------------------------------------------------------------------------------------

    def _introduce(self, agent: str | None, record: dict[str, Any] | None = None) -> None:
        """Find the call that spawned a subagent: by its id in a result, or by the prompt that it was given."""
        parent = self._links.get(agent) if agent is not None else None
        if record is not None and agent not in self._met:
            self._met.add(agent)
            if parent is None:
                message = record.get("message")
                prompt = _prompt_of(message) if type(message) is dict else None
                calls = self.spawning.get(hash(prompt)) if prompt is not None else None
                taken = set(self._links.values())
                parent = next((call for call in calls or () if call not in taken), None)
                if parent is not None and agent is not None:
                    self._links[agent] = parent
                elif prompt == "Warmup":  # 2.0 warms its caches up with a prompt of its own
                    self._warmups.add(agent)
        self.emit.agent(agent, parent)

    def _speak_for(self, record: dict[str, Any]) -> None:
        """A subagent's row in the main file; before 2.0 such rows had no agent id, only a chain."""
        agent = record.get("agentId")
        if type(agent) is not str or not agent:
            parent, uuid = as_text(record.get("parentUuid")), as_text(record.get("uuid"))
            agent = self._tips.get(hash(uuid)) or self._tips.get(hash(parent))
            if agent is None:
                self._chains += 1
                agent = f"sidechain-{self._chains}"
            if uuid is not None:
                self._tips[hash(uuid)] = agent
        self._introduce(agent, record)
        self.emit.abandoned = self._is_withdrawn() or agent in self._warmups

    # -- what rows say -----------------------------------------------------------------------------------

    def _assistant(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        time = self.time(record.get("timestamp"))
        model = message.get("model")
        if model == SYNTHETIC or record.get("isApiErrorMessage") is True:
            self._synthetic(record, message, time)
            return
        if self.boundary is not None:
            self.flush_boundary()
        if type(model) is not str:
            model = None
        usage = message.get("usage")
        call = self.model_call(message.get("id"), record.get("requestId"), usage)
        self.say(message.get("content"), call, time, model)
        self.count(call, usage, message.get("stop_reason"), time, model, final=True)

    def _synthetic(self, record: dict[str, Any], message: dict[str, Any], time: str | None) -> None:
        """What the harness wrote in the model's place: a failure of the provider, or words of its own."""
        text = joined(message.get("content"))
        if record.get("isApiErrorMessage") is True or text.startswith("API Error"):
            self.emit.error(
                text,
                True,
                time,
                isApiErrorMessage=True,
                error=as_text(record.get("error")),
                apiErrorStatus=count(record.get("apiErrorStatus")),
                requestId=as_text(record.get("requestId")),
            )
        elif text and text != NOT_AN_ERROR:
            self.emit.user({"type": "text", "text": text}, time, injected="synthetic")

    def _user(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        time = self.time(record.get("timestamp"))
        content = message.get("content")
        if record.get("isCompactSummary") is True:
            self.compacted(joined(content), time)
            return
        if self.boundary is not None:
            self.flush_boundary()
        if self._own_file and self.part.agent_id not in self._met:
            self._first_words(record)
        if type(content) is list and len(content) == 1 and type(content[0]) is dict:
            block = content[0]
            if block.get("type") == "tool_result":
                self._result(block, record.get("toolUseResult"), time)
                return
        blocks = as_blocks(content)
        results = [block for block in blocks if block.get("type") == "tool_result"]
        said = record.get("toolUseResult") if len(results) == 1 else None
        for block in results:
            self._result(block, said, time)
        if len(results) < len(blocks) or not blocks:
            self.words(record, [block for block in blocks if block.get("type") != "tool_result"], time)

    def _result(self, block: dict[str, Any], said: object, time: str | None) -> None:
        self.tool_result(block, said, time)
        if type(said) is dict and "agentId" in said:
            agent, call = said["agentId"], block.get("tool_use_id")
            if type(agent) is str and type(call) is str:
                self._links.setdefault(agent, call)

    def _first_words(self, record: dict[str, Any]) -> None:
        """The prompt in a subagent's own file."""
        if self.part.parent_call is not None:
            self._met.add(self.part.agent_id)
            return
        self._introduce(self.part.agent_id, record)
        self.emit.abandoned = self.part.agent_id in self._warmups

    def _attachment(self, record: dict[str, Any]) -> Line:
        attachment = record.get("attachment")
        if type(attachment) is not dict:
            return Line.UNKNOWN
        time = self.time(record.get("timestamp"))
        if attachment.get("type") == "queued_command":  # typed while the model was at work
            prompt = attachment.get("prompt")
            if prompt and attachment.get("commandMode") != "task-notification":
                self.words(record, as_blocks(prompt), time)
                return Line.PARSED
            text, kind = prompt if isinstance(prompt, str) else "", "task_notification"
        else:
            text, kind = attachment_text(attachment)
        if text:
            self.emit.user({"type": "text", "text": text}, time, injected=kind)
        elif (picture := attached_picture(attachment)) is not None:  # a person named it: `@dot.png`
            self.emit.user(picture, time)
        return Line.PARSED

    def _system(self, record: dict[str, Any]) -> Line:
        subtype = record.get("subtype")
        time = self.time(record.get("timestamp"))
        if subtype == "compact_boundary":
            self.hold_boundary(compaction_facts(record.get("compactMetadata")), time)
        elif subtype == "api_error":
            message, status = _failure(record.get("error"))
            self.emit.error(
                message or as_text(record.get("content")) or "API error",
                False,
                time,
                retried=True,
                attempt=count(record.get("retryAttempt")),
                maxRetries=count(record.get("maxRetries")),
                errorStatus=status,
            )
        elif subtype is not None and not (type(subtype) is str and subtype in SYSTEM):
            return Line.UNKNOWN
        return Line.PARSED


def _prompt_of(message: Mapping[str, Any]) -> str | None:
    blocks = as_blocks(message.get("content"))
    text = blocks[0].get("text") if len(blocks) == 1 else None
    return text if isinstance(text, str) else None


def _failure(error: object, depth: int = 0) -> tuple[str | None, int | None]:
    """Words and HTTP status of a provider's error, however deep its client has wrapped it."""
    if isinstance(error, str):
        return error or None, None
    if not isinstance(error, dict) or depth > 4:
        return None, None
    inner, status = _failure(error.get("error"), depth + 1)
    return inner or as_text(error.get("message")), count(error.get("status")) or status
