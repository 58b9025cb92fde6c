"""What comes over the network: requests, transfers with a way to go on, verified downloads.

`web` has the limits of a request; a download is kept only if its hash is right.
"""
