"""Training: learning a bundle."""
