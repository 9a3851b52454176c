"""What Weft is compared with: the same work without Weft."""
