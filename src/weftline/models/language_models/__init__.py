"""What Weftline knows of language models: wire forms, limits, prices, prompt caches, token counts."""
