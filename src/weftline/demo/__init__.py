"""``weftline demo``: an orchestrator and two sub-agents solve a problem over a real server, with narration."""
