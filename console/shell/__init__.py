"""Reading a cluster with a person's own rights, and printing views of it."""
