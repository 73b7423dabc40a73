"""Several sequences at once. The megakernel decodes one; a batch runs on the ordinary chain of kernels.

On a GPU that is ``csrc/baseline``, the ops of a layer as kernels of their own, on one rank; on the CPU it is
the torch reference. A step is one pass with a row for each sequence, which gets a token: no draft, no tree.
"""
