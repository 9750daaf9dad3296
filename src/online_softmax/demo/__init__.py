"""The demo: a next-word model trained with ``online_softmax.cross_entropy`` beside torch's own."""
