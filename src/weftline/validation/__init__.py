"""``weftline validate``: the eight validations of the context engine, each on a temporary database."""
