"""What context is called elsewhere: native objects as records and back, with the ids they have there."""
