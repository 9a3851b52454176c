"""The schema, as ordered steps that are applied once and never edited."""
