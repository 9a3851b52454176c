"""Model proxy: stands in for a provider of language models, and forwards to it byte for byte."""
