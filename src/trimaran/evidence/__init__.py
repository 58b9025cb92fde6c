"""Read the evidence below site/results and the published numbers, and validate them strictly.

`store` reads all evidence, and `recipe_status` derives the status of each recipe. All pages of the
site take their numbers from this package.
"""
