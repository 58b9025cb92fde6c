"""Several runs or evidence files side by side: what differs, and whether it is more than noise."""
