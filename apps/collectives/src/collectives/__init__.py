"""Collective operations and messages between ranks, measured and checked; see the README."""
