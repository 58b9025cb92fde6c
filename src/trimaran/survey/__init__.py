"""What is here and what is wrong: the catalog, the cache and what it holds, the doctor."""
