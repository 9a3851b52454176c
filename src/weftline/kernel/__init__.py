"""Types and ports that every capability shares. Imports nothing else of Weftline."""
