"""Who calls the hooks."""
