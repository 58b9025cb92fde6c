"""Train a small network on several ranks, with WORKERS=HOST:PORT,HOST:PORT and a launcher.

    WORKERS=localhost:29501,localhost:29502 mpirun -n 2 python keras_multiworker.py FILE.npz
"""

import json
import os
import sys
import tempfile
import zlib

import numpy as np
import tensorflow as tf

BATCH, EPOCHS = 128, 3

rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["SLURM_PROCID"])
workers = os.environ["WORKERS"].split(",")
os.environ["TF_CONFIG"] = json.dumps({
    "cluster": {"worker": workers}, "task": {"type": "worker", "index": rank},
})
strategy = tf.distribute.MultiWorkerMirroredStrategy()

tf.keras.utils.set_random_seed(17)
data = np.load(sys.argv[1])
images = data["images"][..., np.newaxis].astype(np.float32) / 255
labels = data["labels"].astype(np.int32)
batches = tf.data.Dataset.from_tensor_slices((images, labels))
batches = batches.shuffle(len(images), seed=17).batch(BATCH, drop_remainder=True)

with strategy.scope():
    model = tf.keras.Sequential([
        tf.keras.layers.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(16, 3, strides=2, activation="gelu"),
        tf.keras.layers.Conv2D(32, 3, strides=2, activation="gelu"),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(10),
    ])
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
history = model.fit(batches, epochs=EPOCHS, verbose=2 if rank == 0 else 0)

model.save("model.keras" if rank == 0 else f"{tempfile.mkdtemp()}/model.keras")
checksum = zlib.crc32(b"".join(weight.tobytes() for weight in model.get_weights()))
print(f"rank {rank}: loss {history.history['loss'][-1]:.6f}  weights {checksum:08x}")
