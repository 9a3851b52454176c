"""MCP, in both protocol eras: with a handshake (2025-11-25) and stateless (2026-07-28), over HTTP and stdio."""
