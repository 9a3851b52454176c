"""How things are kept: the rooms' ports, implemented once in SQL for SQLite and PostgreSQL."""
