"""Write the images of one packed shard of Fashion-MNIST into a NumPy file.

    python prepare.py SHARD.tar FILE.npz

FILE.npz gets `images`, uint8 of shape (images, 28, 28), and `labels`, uint8 of shape (images,).
"""

import io
import sys
import tarfile

import numpy as np
from PIL import Image

images, labels = [], []
with tarfile.open(sys.argv[1]) as shard:
    for member in shard:
        content = shard.extractfile(member).read()
        if member.name.endswith(".png"):
            images.append(np.asarray(Image.open(io.BytesIO(content))))
        else:
            labels.append(int(content))
np.savez(sys.argv[2], images=np.stack(images), labels=np.array(labels, np.uint8))
