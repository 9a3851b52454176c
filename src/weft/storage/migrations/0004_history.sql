-- Branches and merges of lines, retention, what agents are and know, values outside the database, work done by itself.

-- A branch goes on from a moment of another line, and shares everything before it.
ALTER TABLE lines ADD COLUMN base_line TEXT;
ALTER TABLE lines ADD COLUMN base_seq {bigint};
-- The line it is a branch of, however many branches lie between.
ALTER TABLE lines ADD COLUMN trunk TEXT;
-- The workflow step of the last commit that named one.
ALTER TABLE lines ADD COLUMN step TEXT;

CREATE INDEX lines_by_base ON lines (tenant, base_line, base_seq) WHERE base_line IS NOT NULL;
CREATE INDEX lines_by_trunk ON lines (tenant, trunk, line_id) WHERE trunk IS NOT NULL;

-- What the line weighed after the commit, so that a branch from any moment knows without looking.
ALTER TABLE commits ADD COLUMN weight {bigint};
-- The second parent of a merge. The hash tells whether the line of that name is still the one that was merged.
ALTER TABLE commits ADD COLUMN merged_line TEXT;
ALTER TABLE commits ADD COLUMN merged_seq {bigint};
ALTER TABLE commits ADD COLUMN merged_hash {blob};

CREATE INDEX commits_that_merge ON commits (tenant, line_id, seq) WHERE merged_line IS NOT NULL;

-- Covers label, moment and author, so that a tag that was moved or forged is found out.
ALTER TABLE tags ADD COLUMN hash {blob};
ALTER TABLE tags ADD COLUMN automatic {bigint} NOT NULL DEFAULT 0;

CREATE INDEX tags_by_creation ON tags (tenant, created_at, line_id, label);

-- The path of a value that is kept outside the database; the content is then what points there.
ALTER TABLE blobs ADD COLUMN object TEXT;

-- Without rowids a row of more than a kilobyte takes pages of its own in SQLite; in an ordinary table it shares them.
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

-- Moments that something beside a tag or a branch depends on: an agent's session, an open review.
CREATE TABLE pins (
    tenant  TEXT NOT NULL,
    line_id TEXT NOT NULL,
    seq     {bigint} NOT NULL,
    holder  TEXT NOT NULL,
    PRIMARY KEY (tenant, line_id, seq, holder)
) {table};

CREATE INDEX pins_by_holder ON pins (tenant, holder);

-- Who works on which branch of what, where it is not the line itself; gone once that branch was deleted.
CREATE TABLE switches (
    tenant       TEXT NOT NULL,
    line_id      TEXT NOT NULL,
    principal_id TEXT NOT NULL,
    branch       TEXT NOT NULL,
    gone         {bigint} NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, line_id, principal_id)
) {table};

-- How many branches a session's board has, so that a board without any need not look for them.
ALTER TABLE sessions ADD COLUMN branches {bigint} NOT NULL DEFAULT 0;

-- Merges that a human must decide about.
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

-- How long old values are kept, and which pushes are large enough for a snapshot: for a sort of line, or for one line.
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

-- What retention removed, and by which rule.
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

-- What an agent holds in a session: one immutable version of its context, and on which line that version really is.
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

-- Values kept outside the database: on their way (pending), there (kept), or on their way out (doomed, deleting).
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

-- Work that goes on by itself: who does it until when, and how far it got.
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
