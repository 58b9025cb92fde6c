"""FutureGAN: a progressively grown GAN that predicts the next frames of a video; see the README."""
