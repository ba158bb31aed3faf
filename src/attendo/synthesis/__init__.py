"""Training pairs that models make: a teacher's translations, and back-translations."""
