"""Quality on data: each evaluation is a data set, a task and a score."""
