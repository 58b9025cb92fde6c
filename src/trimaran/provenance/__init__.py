"""Origin and verification of images.

Registries, digests, signatures, bills of materials, licences, audits and repeated builds."""
