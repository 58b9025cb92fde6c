"""The search for faster settings of a recipe on this machine, by short runs."""
