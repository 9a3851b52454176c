"""Search: finding messages again, by what they say, who said it and when."""
