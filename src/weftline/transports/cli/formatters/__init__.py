"""Human-readable output of operations, one module per topic."""
