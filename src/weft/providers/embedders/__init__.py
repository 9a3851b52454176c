"""Embedders: the model that comes with Weft, and any that is reached over the network."""
