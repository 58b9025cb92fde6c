"""The verdict of a run: the files of the run are compared, then its metrics are judged."""
