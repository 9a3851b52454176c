-- The tools last chosen for an agent, and whose were chosen since: lists of tools follow from them.
CREATE INDEX tool_selections_by_agent ON tool_selections (tenant, agent_id, selected_at);
CREATE INDEX tool_selections_by_time ON tool_selections (tenant, selected_at);
