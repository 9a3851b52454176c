"""The words every capability shares. Imports nothing else of Weft."""
