"""Background jobs: one scheduler, one lease runner, and what each job does."""
