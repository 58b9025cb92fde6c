"""Teaching series: image classification in Keras with every strategy of TensorFlow."""
