"""Model proxy: forwards requests to providers of language models, and their answers back, without changing a byte."""
