"""The speed of training, translation and data preparation, measured on the code of real runs."""
