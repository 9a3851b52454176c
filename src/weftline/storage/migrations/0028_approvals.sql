-- Calls that are held until somebody approves them. digest: the same for identical calls of a caller.
-- checks: what an approver has let the call pass. outcome: the stored answer. due_at: when to expire it, take it over
-- from a performer that is gone, or delete it.
CREATE TABLE approvals (
    tenant          TEXT NOT NULL,
    approval_id     TEXT NOT NULL,
    caller_id       TEXT NOT NULL,
    caller          TEXT NOT NULL,
    session_id      TEXT,
    operation       TEXT NOT NULL,
    request         {blob} NOT NULL,
    request_bytes   {bigint} NOT NULL,
    digest          {blob} NOT NULL,
    hold            TEXT NOT NULL,
    reason          TEXT NOT NULL,
    permissions     TEXT NOT NULL,
    token_id        TEXT,
    key_id          TEXT,
    step            TEXT,
    correlation     TEXT NOT NULL,
    created_at      {bigint} NOT NULL,
    expires_at      {bigint} NOT NULL,
    due_at          {bigint} NOT NULL,
    state           TEXT NOT NULL,
    checks          TEXT NOT NULL,
    decided_at      {bigint},
    decided_by      TEXT,
    decision_reason TEXT,
    performer       TEXT,
    outcome         {blob},
    performed_at    {bigint},
    collected_at    {bigint},
    PRIMARY KEY (tenant, approval_id)
) {table};

CREATE UNIQUE INDEX approvals_pending ON approvals (tenant, caller_id, digest) WHERE state = 'pending';
CREATE INDEX approvals_by_caller ON approvals (tenant, caller_id, digest, approval_id);
CREATE INDEX approvals_by_state ON approvals (tenant, state, approval_id);
CREATE INDEX approvals_by_session ON approvals (tenant, session_id);
CREATE INDEX approvals_due ON approvals (tenant, due_at);
