"""Train a small network with Horovod: mpirun -n 2 python keras_horovod.py FILE.npz."""

import sys
import zlib

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

BATCH, EPOCHS = 128, 3

hvd.init()
rank, ranks = hvd.rank(), hvd.size()
gpus = tf.config.list_physical_devices("GPU")
if gpus:  # one for each rank
    tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")

tf.keras.utils.set_random_seed(17)
data = np.load(sys.argv[1])
images = data["images"][..., np.newaxis].astype(np.float32) / 255
labels = data["labels"].astype(np.int32)
batches = tf.data.Dataset.from_tensor_slices((images, labels))
batches = batches.shuffle(len(images), seed=17).batch(BATCH, drop_remainder=True)
batches = batches.map(lambda x, y: (x[rank::ranks], y[rank::ranks]))

model = tf.keras.Sequential([
    tf.keras.layers.Input((28, 28, 1)),
    tf.keras.layers.Conv2D(16, 3, strides=2, activation="gelu"),
    tf.keras.layers.Conv2D(32, 3, strides=2, activation="gelu"),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(10),
])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01, momentum=0.9))
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer, loss, metrics=["accuracy"])
same = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
history = model.fit(batches, epochs=EPOCHS, verbose=2 if rank == 0 else 0, callbacks=same)

if rank == 0:
    model.save("model.keras")
checksum = zlib.crc32(b"".join(weight.tobytes() for weight in model.get_weights()))
print(f"rank {rank}: loss {history.history['loss'][-1]:.6f}  weights {checksum:08x}")
