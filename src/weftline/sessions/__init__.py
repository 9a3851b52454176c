"""Where agents meet, and what they say."""
