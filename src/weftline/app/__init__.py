"""The composition root: wires settings, storage, providers and registry into one App for all interfaces."""
