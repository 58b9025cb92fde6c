"""Programs whose speed the apps are compared with: plain trainings, and upper bounds.

Each module is a program: `python -m baselines.NAME --help`.
"""
