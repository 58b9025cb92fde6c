"""Writes the pages of the site that follow from definitions and evidence; `hooks` hands them on."""
