"""FutureGAN: the next frames of a video, by a progressively grown GAN; see the README."""
