-- Source and trust of an item as JSON, where they are not those of its author.
ALTER TABLE entries ADD COLUMN trust TEXT;
ALTER TABLE memory_entries ADD COLUMN trust TEXT;
ALTER TABLE messages ADD COLUMN trust TEXT;
