"""Write files of evidence, reports of runs with curves, and reports of scaling series."""
