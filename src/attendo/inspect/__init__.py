"""Looking inside: attention weights as pictures."""
