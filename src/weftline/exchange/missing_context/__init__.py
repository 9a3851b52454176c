"""Missing context: report known gaps, request answers, and resolve them."""
