"""The encoder included in Weft: tokenizer, layers, installed weights, and the classifier of texts built on them."""
