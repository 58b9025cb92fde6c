"""Generate the pages of the site from definitions, recipes and evidence."""
