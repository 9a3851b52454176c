"""One set of operations on the history of every line: look back, name, take back, branch, merge, retain."""
