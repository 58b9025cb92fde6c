"""Train a small network in one process with Keras: python keras_plain.py FILE.npz."""

import sys
import zlib

import numpy as np
import tensorflow as tf

BATCH, EPOCHS = 128, 3

tf.keras.utils.set_random_seed(17)
data = np.load(sys.argv[1])
images = data["images"][..., np.newaxis].astype(np.float32) / 255
labels = data["labels"].astype(np.int32)
batches = tf.data.Dataset.from_tensor_slices((images, labels))
batches = batches.shuffle(len(images), seed=17).batch(BATCH, drop_remainder=True)

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
history = model.fit(batches, epochs=EPOCHS, verbose=2)

model.save("model.keras")
checksum = zlib.crc32(b"".join(weight.tobytes() for weight in model.get_weights()))
print(f"loss {history.history['loss'][-1]:.6f}  weights {checksum:08x}")
