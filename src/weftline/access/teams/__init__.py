"""Teams: named groups of agents and humans, with shared memory, guidelines and a place in ACLs."""
