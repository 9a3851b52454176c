"""Search over documents, messages, boards and memories: ranking, results, context for prompts."""
