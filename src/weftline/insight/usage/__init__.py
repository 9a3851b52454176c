"""Reports and exports of usage: what model calls cost, by whom and when."""
