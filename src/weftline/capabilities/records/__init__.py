"""Agent Context records: types, JSON Schemas, validation, selectors, mappings to other formats, and their storage."""
