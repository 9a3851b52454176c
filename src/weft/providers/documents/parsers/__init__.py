"""The parsers of the worker, which runs them as modules of their own."""
