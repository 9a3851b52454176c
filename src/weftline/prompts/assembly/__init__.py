"""Assembly of prompts: candidates, plan, rendering, receipts and savings."""
