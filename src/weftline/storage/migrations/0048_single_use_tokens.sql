-- A token that can only be exchanged for another one, once: the link that signs a browser in.
ALTER TABLE access_tokens ADD COLUMN single_use {bigint} NOT NULL DEFAULT 0;
