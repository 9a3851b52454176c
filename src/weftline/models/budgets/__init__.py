"""Budgets: what a tenant, a team or an agent may spend in a day or a month, in tokens and money."""
