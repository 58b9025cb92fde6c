"""What is published: the evidence below site/results and published numbers, read strictly.

`shelf` has all of it, `standing` how each recipe stands. Who shows a number takes it from here.
"""
