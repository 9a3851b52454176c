"""An agent's context: what it is and what it knows, under one version; pushed to, and pulled into sessions."""
