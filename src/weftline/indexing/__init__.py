"""How text becomes findable."""
