-- Salt of the digest that a redacted item shows in place of its content; nobody who reads the item sees it.
ALTER TABLE redactions ADD COLUMN salt {blob};
