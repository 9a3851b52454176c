"""Compaction: a shorter derived view of a window's older events, checked for what it must keep."""
