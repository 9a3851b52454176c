"""REST, live events, the collaboration API's shims, health and metrics over HTTP."""
