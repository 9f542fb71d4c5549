"""The vocabulary of the whole project; imports nothing of ours."""
