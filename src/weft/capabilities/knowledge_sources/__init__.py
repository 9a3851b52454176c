"""Sources of knowledge: folders, addresses and hooks that documents come from by themselves."""
