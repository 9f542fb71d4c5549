"""What is done once for pods that are alike: deciding, and most of a record."""
