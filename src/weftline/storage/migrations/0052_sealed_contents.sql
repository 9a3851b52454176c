-- A redacted version shows another value: blob_hash, meta and reason are of what is shown, the sealed_ columns of what was
-- written, from which the hash of its commit is computed. NULL: not redacted.
ALTER TABLE changes ADD COLUMN sealed_hash {blob};
ALTER TABLE changes ADD COLUMN sealed_meta TEXT;
ALTER TABLE commits ADD COLUMN sealed_reason TEXT;

CREATE INDEX changes_by_sealed_blob ON changes (tenant, sealed_hash) WHERE sealed_hash IS NOT NULL;
CREATE INDEX changes_sealed ON changes (tenant, line_id, key) WHERE sealed_hash IS NOT NULL;

-- What a redacted message, or the metadata of a redacted memory entry, was.
ALTER TABLE redactions ADD COLUMN original {blob};
