"""What exists, what fits, what is best: shared by every program."""
