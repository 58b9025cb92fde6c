"""A run in one file, for a machine without network or this tool: packed here, unpacked there."""
