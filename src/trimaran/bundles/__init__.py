"""A run in one file, for a machine without network or this tool: packed here, unpacked there.

`archive` is the file, with the hash of all that is in it; `runscript` the shell that starts it.
"""
