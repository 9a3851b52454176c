"""Search over documents, messages, boards and memories: ranking and results."""
