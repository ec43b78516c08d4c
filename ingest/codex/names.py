"""Records of a Codex rollout that are known and become no turn: copies, and notes that something happened then.

A kind that is neither here nor handled is counted as unknown.
"""

from __future__ import annotations

LINES = frozenset({"world_state", "inter_agent_communication", "inter_agent_communication_metadata"})

ITEMS = frozenset(
    {
        "additional_tools",
        "compaction",
        "compaction_summary",
        "compaction_trigger",
        "context_compaction",
        "ghost_snapshot",
        "other",
    }
)
"""What the provider gets beside the conversation."""

COPIES = frozenset(
    {
        "agent_message",
        "agent_message_delta",
        "agent_reasoning",
        "agent_reasoning_raw_content",
        "agent_reasoning_section_break",
        "plan_delta",
        "plan_update",
        "view_image_tool_call",
        "web_search_begin",
        "web_search_end",
    }
)
BEGINNINGS = frozenset(
    {
        "dynamic_tool_call_request",
        "exec_approval_request",
        "exec_command_begin",
        "exec_command_output_delta",
        "image_generation_begin",
        "image_generation_end",
        "item_started",
        "mcp_tool_call_begin",
        "patch_apply_begin",
        "terminal_interaction",
    }
)
AGENTS = frozenset(
    {
        "collab_agent_interaction_begin",
        "collab_agent_interaction_end",
        "collab_agent_spawn_begin",
        "collab_agent_spawn_end",
        "collab_close_begin",
        "collab_close_end",
        "collab_resume_begin",
        "collab_resume_end",
        "collab_waiting_begin",
        "collab_waiting_end",
        "sub_agent_activity",
    }
)
LIFE = frozenset(
    {
        "background_event",
        "deprecation_notice",
        "dynamic_tool_call_response",
        "entered_review_mode",
        "exited_review_mode",
        "mcp_startup_complete",
        "mcp_startup_update",
        "model_reroute",
        "request_user_input",
        "session_configured",
        "shutdown_complete",
        "stream_error",
        "task_complete",
        "task_started",
        "thread_rolled_back",
        "turn_aborted",
        "turn_complete",
        "turn_diff",
        "turn_started",
        "undo_completed",
        "undo_started",
        "warning",
    }
)
EVENTS = COPIES | BEGINNINGS | AGENTS | LIFE
