"""Tasks of the worker process. It imports them as top-level modules, without Weftline."""
