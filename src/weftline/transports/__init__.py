"""How Weftline is reached. No capability code lives here: everything is read off the registry."""
