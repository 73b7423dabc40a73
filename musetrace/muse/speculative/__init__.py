"""Speculative decoding: a tree of guesses, one verify pass over it, and the tokens that it proves.

``tree`` (candidates from the draft's scores), ``sampling`` (which token follows a row of logits), ``accept``
(the longest path that matches) and ``reference`` (whole steps in plain torch).
"""
