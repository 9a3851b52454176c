"""Events pushed to the addresses of others: signed, tried again, and never lost."""
