"""Knowledge: domains of documents, put by whoever may, and found by whoever may look into the domain."""
