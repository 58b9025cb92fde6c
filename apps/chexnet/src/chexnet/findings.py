"""The published AUROC of each finding in a chest X-ray.

ChestX-ray14 has 14 findings; an image may have any number of them. The sources are Wang et al.,
"ChestX-ray8", CVPR 2017 (ResNet-50, in the version with 14 findings); Rajpurkar et al., "CheXNet",
arXiv:1711.05225, table 2; and an open re-implementation of CheXNet in PyTorch (arnoweng/CheXNet).
The sources used different test images: the first source used the official test list, the other two
used random splits by patients.
"""

from __future__ import annotations

from collections.abc import Sequence

NOTICE = "Not a medical device: no decision about a patient may rest on this."

SOURCES = ("Wang 2017", "CheXNet", "open re-implementation")
REFERENCE = {
    "Atelectasis": (0.716, 0.8094, 0.8294),
    "Cardiomegaly": (0.807, 0.9248, 0.9165),
    "Effusion": (0.784, 0.8638, 0.8870),
    "Infiltration": (0.609, 0.7345, 0.7143),
    "Mass": (0.706, 0.8676, 0.8597),
    "Nodule": (0.671, 0.7802, 0.7873),
    "Pneumonia": (0.633, 0.7680, 0.7745),
    "Pneumothorax": (0.806, 0.8887, 0.8726),
    "Consolidation": (0.708, 0.7901, 0.8142),
    "Edema": (0.835, 0.8878, 0.8932),
    "Emphysema": (0.815, 0.9371, 0.9254),
    "Fibrosis": (0.769, 0.8047, 0.8304),
    "Pleural_Thickening": (0.708, 0.8062, 0.7831),
    "Hernia": (0.767, 0.9164, 0.9104),
}
"""Name of the finding in ChestX-ray14 -> its AUROC in each of the three `SOURCES`."""


def better(
    findings: Sequence[str], aurocs: Sequence[float | None]
) -> dict[str, tuple[int, int]]:
    """Compare AUROCs with published AUROCs.

    Args:
        findings: names of the findings.
        aurocs: AUROC of each finding; None if it is undefined.

    Returns:
        Source -> (number of findings whose AUROC is better than published, number of compared
        findings). The dict is empty if no finding has a published AUROC.
    """
    both = [(ours, REFERENCE[name]) for name, ours in zip(findings, aurocs, strict=True)
            if ours is not None and name in REFERENCE]
    return {
        source: (sum(ours > theirs[at] for ours, theirs in both), len(both))
        for at, source in enumerate(SOURCES) if both
    }
