"""Trust: where stored content came from, how far it is trusted, and the gate that checks it before it is stored."""
