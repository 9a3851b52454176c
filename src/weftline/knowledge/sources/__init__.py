"""Sources of knowledge: folders, URLs and hooks that documents come from."""
