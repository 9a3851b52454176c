"""Following: what is said in sessions and remembered by agents is put where searches find it, soon after."""
