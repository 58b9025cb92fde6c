"""Where images come from and what vouches for them.

Registries, digests, signatures, bills of materials, licences, audits, builds compared."""
