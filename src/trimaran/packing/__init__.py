"""Packed data sets: from a folder or the official tars to shards in one of five formats, and back.

`listing` and `ilsvrc` say which samples there are, `pictures` makes their bytes, one module
for each format writes and reads shards, `packer` does it all in parallel, `verification`
checks what was made.
"""
