"""CheXNet: transfer learning on chest X-rays in TensorFlow."""
