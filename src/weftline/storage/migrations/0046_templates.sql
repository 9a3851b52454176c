-- template: the copy of the template that a domain was created from, as JSON; retention_days repeats its field.
-- evaluation: what its example questions found, as JSON. content_changes counts the changes of its documents;
-- evaluated_changes is the count that the evaluation covers.
ALTER TABLE domains ADD COLUMN template TEXT;
ALTER TABLE domains ADD COLUMN retention_days INTEGER;
ALTER TABLE domains ADD COLUMN evaluation TEXT;
ALTER TABLE domains ADD COLUMN content_changes {bigint} NOT NULL DEFAULT 0;
ALTER TABLE domains ADD COLUMN evaluated_changes {bigint} NOT NULL DEFAULT 0;
CREATE INDEX domains_with_template ON domains (tenant, domain) WHERE template IS NOT NULL;
