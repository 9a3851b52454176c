"""Extractive reduction: shorten a conversation to a number of tokens by choosing words, without a model."""
