-- Minimum relevance of this principal's search results; null: the default.
ALTER TABLE principals ADD COLUMN min_score {real};
