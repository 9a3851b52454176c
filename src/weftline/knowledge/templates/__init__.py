"""Templates of domains: chunking, metadata fields, pinned documents, retention and example questions, as data."""
