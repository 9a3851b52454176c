-- Branches and merges, retention, context snapshots, object storage, background jobs.

-- A branch starts at a commit of another line and shares everything before it.
ALTER TABLE lines ADD COLUMN base_line TEXT;
ALTER TABLE lines ADD COLUMN base_seq {bigint};
-- The trunk of the branch, also for a branch of a branch.
ALTER TABLE lines ADD COLUMN trunk TEXT;
-- The workflow step of the last commit that has one.
ALTER TABLE lines ADD COLUMN step TEXT;

CREATE INDEX lines_by_base ON lines (tenant, base_line, base_seq) WHERE base_line IS NOT NULL;
CREATE INDEX lines_by_trunk ON lines (tenant, trunk, line_id) WHERE trunk IS NOT NULL;

-- Weight of the line after the commit, for branches that start there.
ALTER TABLE commits ADD COLUMN weight {bigint};
-- The second parent of a merge. The hash detects a line that was deleted and created again under the same name.
ALTER TABLE commits ADD COLUMN merged_line TEXT;
ALTER TABLE commits ADD COLUMN merged_seq {bigint};
ALTER TABLE commits ADD COLUMN merged_hash {blob};

CREATE INDEX commits_that_merge ON commits (tenant, line_id, seq) WHERE merged_line IS NOT NULL;

-- Hash over label, version and author, to detect a moved or forged tag.
ALTER TABLE tags ADD COLUMN hash {blob};
ALTER TABLE tags ADD COLUMN automatic {bigint} NOT NULL DEFAULT 0;

CREATE INDEX tags_by_creation ON tags (tenant, created_at, line_id, label);

-- The path of a value in object storage; the content is then the pointer to it.
ALTER TABLE blobs ADD COLUMN object TEXT;

-- In SQLite, a WITHOUT ROWID table stores rows over a kilobyte in separate pages; an ordinary table shares pages.
{sqlite_only}
CREATE TABLE blobs_by_rowid (
    tenant  TEXT NOT NULL,
    hash    {blob} NOT NULL,
    content {blob} NOT NULL,
    object  TEXT,
    PRIMARY KEY (tenant, hash)
) STRICT;

INSERT INTO blobs_by_rowid (tenant, hash, content, object) SELECT tenant, hash, content, object FROM blobs;
DROP TABLE blobs;
ALTER TABLE blobs_by_rowid RENAME TO blobs;
{end_sqlite_only}

-- Versions pinned by something other than a tag or branch: an agent's session, an open review.
CREATE TABLE pins (
    tenant  TEXT NOT NULL,
    line_id TEXT NOT NULL,
    seq     {bigint} NOT NULL,
    holder  TEXT NOT NULL,
    PRIMARY KEY (tenant, line_id, seq, holder)
) {table};

CREATE INDEX pins_by_holder ON pins (tenant, holder);

-- The branch that a principal has checked out, if not the trunk; gone is set when that branch is deleted.
CREATE TABLE switches (
    tenant       TEXT NOT NULL,
    line_id      TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    branch       TEXT NOT NULL,
    gone         {bigint} NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, line_id, principal_id)
) {table};

-- The number of branches of a session's board, to skip the lookup if there are none.
ALTER TABLE sessions ADD COLUMN branches {bigint} NOT NULL DEFAULT 0;

-- Merge reviews: conflicts for a human to decide.
CREATE TABLE reviews (
    tenant      TEXT NOT NULL,
    review_id   TEXT NOT NULL,
    line_id     TEXT NOT NULL,
    source_line TEXT NOT NULL,
    state       TEXT NOT NULL,
    ours_seq    {bigint} NOT NULL,
    theirs_seq  {bigint} NOT NULL,
    base_line   TEXT NOT NULL,
    base_seq    {bigint} NOT NULL,
    conflicts   TEXT NOT NULL,
    reason      TEXT NOT NULL,
    opened_by   TEXT NOT NULL,
    opened_at   {bigint} NOT NULL,
    decided_by  TEXT,
    decided_at  {bigint},
    PRIMARY KEY (tenant, review_id)
) {table};

CREATE INDEX reviews_by_line ON reviews (tenant, line_id, opened_at);

-- Retention rules, for a kind of line or one line: how long old values are kept, and which pushes take a snapshot.
CREATE TABLE retention (
    tenant        TEXT NOT NULL,
    subject       TEXT NOT NULL,
    days          {bigint},
    versions      {bigint},
    snapshot_from {bigint},
    updated_by    TEXT NOT NULL,
    updated_at    {bigint} NOT NULL,
    PRIMARY KEY (tenant, subject)
) {table};

-- Prune log: what retention removed, and by which rule.
CREATE TABLE prunings (
    tenant     TEXT NOT NULL,
    pruning_id TEXT NOT NULL,
    line_id    TEXT NOT NULL,
    pruned_at  {bigint} NOT NULL,
    pruned_by  TEXT NOT NULL,
    rule       TEXT NOT NULL,
    versions   {bigint} NOT NULL,
    bytes      {bigint} NOT NULL,
    first_seq  {bigint} NOT NULL,
    last_seq   {bigint} NOT NULL,
    PRIMARY KEY (tenant, pruning_id)
) {table};

CREATE INDEX prunings_by_line ON prunings (tenant, line_id, pruning_id);

-- The context version an agent has pinned in a session, and the line where that version was committed.
CREATE TABLE context_snapshots (
    tenant       TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    line_id      TEXT NOT NULL,
    held_line    TEXT NOT NULL,
    version      {bigint} NOT NULL,
    hash         {blob} NOT NULL,
    known        {bigint} NOT NULL,
    known_hash   {blob} NOT NULL,
    pulled_at    {bigint} NOT NULL,
    PRIMARY KEY (tenant, session_id, principal_id)
) {table};

-- Index of object storage: uploading (pending), stored (kept), or being removed (doomed, deleting).
CREATE TABLE objects (
    tenant  TEXT NOT NULL,
    path    TEXT NOT NULL,
    state   TEXT NOT NULL,
    size    {bigint} NOT NULL,
    version TEXT,
    at      {bigint} NOT NULL,
    PRIMARY KEY (tenant, path)
) {table};

CREATE INDEX objects_to_clear ON objects (at) WHERE state <> 'kept';

-- Background jobs: lease and cursor.
CREATE TABLE jobs (
    tenant      TEXT NOT NULL,
    job         TEXT NOT NULL,
    cursor      TEXT NOT NULL,
    holder      TEXT,
    lease_until {bigint} NOT NULL,
    due_at      {bigint} NOT NULL,
    progress    TEXT NOT NULL,
    PRIMARY KEY (tenant, job)
) {table};

CREATE INDEX jobs_by_due ON jobs (due_at);
