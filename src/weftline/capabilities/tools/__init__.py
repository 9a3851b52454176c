"""Tools: those of Weftline and those that runtimes register, the steps of a task, and the choice of tools for a task."""
