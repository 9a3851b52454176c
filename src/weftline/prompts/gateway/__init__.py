"""MCP servers behind Weftline's own endpoint: which there are, what their tools say, and who may call them."""
