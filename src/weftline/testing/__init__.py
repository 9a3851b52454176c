"""For those who test against Weftline: contract suites, and a clock that can be moved."""
