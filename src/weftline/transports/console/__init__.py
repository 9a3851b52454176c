"""The console: web pages that show what agents share, remember and were told. Every page calls operations."""
