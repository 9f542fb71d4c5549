"""What admission decides; values in, values out."""
