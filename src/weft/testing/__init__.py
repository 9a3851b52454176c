"""For those who test against Weft: contract suites, and a clock that can be moved."""
