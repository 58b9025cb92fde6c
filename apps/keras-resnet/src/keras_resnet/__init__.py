"""For teaching: image classification in Keras, with each distribution strategy of TensorFlow."""
