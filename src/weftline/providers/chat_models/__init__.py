"""Chat models behind HTTP endpoints: OpenAI-compatible and Anthropic."""
