-- Compactions of windows. figures: the compaction as JSON, without its state. A line has at most one that is not
-- finished, and at most one that is applied.
CREATE TABLE compactions (
    tenant        TEXT NOT NULL,
    compaction_id TEXT NOT NULL,
    session_id    TEXT NOT NULL,
    line_id       TEXT NOT NULL,
    state         TEXT NOT NULL,
    figures       TEXT NOT NULL,
    PRIMARY KEY (tenant, compaction_id)
) {table};

CREATE UNIQUE INDEX compactions_open ON compactions (tenant, line_id) WHERE state IN ('queued', 'running', 'held');
CREATE UNIQUE INDEX compactions_applied ON compactions (tenant, line_id) WHERE state = 'applied';
CREATE INDEX compactions_by_line ON compactions (tenant, line_id, compaction_id);
CREATE INDEX compactions_by_session ON compactions (tenant, session_id);

-- Compacted views as packed JSON; only the newest of each line.
CREATE TABLE compaction_views (
    tenant        TEXT NOT NULL,
    compaction_id TEXT NOT NULL,
    session_id    TEXT NOT NULL,
    line_id       TEXT NOT NULL,
    content       {blob} NOT NULL,
    PRIMARY KEY (tenant, compaction_id)
) {rows_table};

CREATE INDEX compaction_views_by_line ON compaction_views (tenant, line_id, compaction_id);
CREATE INDEX compaction_views_by_session ON compaction_views (tenant, session_id);
