"""Several runs or evidence files side by side: what differs, and whether it is more than noise.

`comparison` groups and judges them, by the statistics of `noise`; `result` is what came of it, for
the terminal and a page.
"""
