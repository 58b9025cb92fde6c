"""Write reports of runs with their curves, files of evidence, and reports of scaling series."""
