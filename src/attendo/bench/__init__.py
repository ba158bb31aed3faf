"""How fast this machine trains, translates and prepares, measured on the paths that are used."""
