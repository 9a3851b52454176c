"""What the product does. A folder may import those listed above it in the layer contract, never a driver or a framework."""
