"""Values kept outside the database: where they lie, what points to them, and what may go wrong with them."""
