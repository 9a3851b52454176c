-- Searches of this principal leave out what is less relevant; null stands for the floor that everyone has.
ALTER TABLE principals ADD COLUMN relevance_floor {real};
