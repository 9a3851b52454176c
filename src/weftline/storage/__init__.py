"""How things are kept: the capabilities' ports, implemented once in SQL for SQLite and PostgreSQL."""
