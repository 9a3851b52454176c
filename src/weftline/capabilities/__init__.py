"""What the product does, a folder each. None imports a driver or a framework."""
