"""Tools: Weftline's own and those that runtimes register, the steps of a task, and the choice of tools for it."""
