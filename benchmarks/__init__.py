"""What the figures in the README are made with."""
