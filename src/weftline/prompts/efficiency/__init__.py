"""How much of a prompt the model used: useful over sent tokens, from the answer or as an estimate."""
