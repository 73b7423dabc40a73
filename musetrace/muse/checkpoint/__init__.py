"""Weights from a checkpoint: a folder of safetensors files with the public parameter names.

``safetensors`` (the files), ``contents`` (which tensors a model needs, and whether a checkpoint has them),
``shares`` (what one rank of a model holds, read by itself) and ``draft`` (a draft's weights).
"""
