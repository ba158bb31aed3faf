"""What the rest of attendo is checked against: `from attendo.reference import paper`."""
