"""The typed clients: every operation over the wire. Import them from weftline: one does not load the other."""
