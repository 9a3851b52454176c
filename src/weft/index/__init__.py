"""Index: copies of shelves made for searching, in memory and in files that can always be made anew."""
