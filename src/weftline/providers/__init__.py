"""What Weftline asks of others: token signing, tokenizers, rate-limit storage. Each implements a port."""
