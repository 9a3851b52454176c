"""``weft demo``: an orchestrator and two sub-agents solve a problem over a real server, told as it happens."""

from weft.demo.run import run

__all__ = ["run"]
