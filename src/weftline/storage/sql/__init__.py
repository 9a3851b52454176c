"""One implementation of every port, in plain SQL."""
