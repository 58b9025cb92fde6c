"""What is here and what is wrong: the catalog, the cache and what it holds, the doctor.

It looks, and changes nothing but what `cache prune` is asked to remove.
"""
