"""The encoder included in Weftline: tokenizer, layers, installed weights, and the classifier of texts built on them."""
