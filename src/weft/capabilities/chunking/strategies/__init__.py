"""One way of finding the places for each kind of text."""
