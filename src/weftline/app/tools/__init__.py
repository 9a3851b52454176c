"""MCP tools: what is listed for a caller, what a call resolves to, and search among all of them."""
