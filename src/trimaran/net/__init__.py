"""What comes over the network: requests, transfers with a way to go on, verified downloads."""
