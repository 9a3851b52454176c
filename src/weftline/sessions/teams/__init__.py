"""Teams: their members and descriptions, and who may see them."""
