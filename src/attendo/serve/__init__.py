"""The server: a page to translate and look inside with, and the interface behind it."""
