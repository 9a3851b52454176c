"""Quality evaluations: each has a data set, a task and a score."""
