"""Pack a run and its inputs into one file, for a machine without a network and without Trimaran.

`archive` reads and writes the tar file and its checksums. `pack` collects the content, `unpack`
verifies and extracts it, and `runscript` renders the shell script that starts the run.
"""
