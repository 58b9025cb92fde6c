"""What is published: the evidence below site/results and published numbers, read strictly."""
