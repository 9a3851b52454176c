"""The board: the key-value working memory that a session's agents share."""
