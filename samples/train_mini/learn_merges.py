"""Which pairs of tokens a vocabulary merges: the most frequent one, again and again."""

from __future__ import annotations

from collections import Counter, defaultdict

from musetrace.muse.tokenizer import BYTES, PIECES, Pair, Tokenizer, merged


def learn(texts: list[str], vocab_size: int) -> Tokenizer:
    """A tokenizer for a model; of pairs that are equally frequent the lower one is merged."""
    counts = Counter(piece for text in texts for piece in PIECES.findall(text.encode()))
    words = [list(piece) for piece in counts]
    times = list(counts.values())
    pairs: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for at, word in enumerate(words):
        _count(word, times[at], at, pairs, places)
    merges: list[Pair] = []
    while len(merges) < vocab_size - BYTES - 2 and pairs:
        best = max(pairs, key=lambda pair: (pairs[pair], -pair[0], -pair[1]))
        if pairs[best] < 2:
            break
        for at in sorted(places[best]):
            _count(words[at], -times[at], at, pairs, places)
            words[at] = merged(words[at], best, BYTES + len(merges))
            _count(words[at], times[at], at, pairs, places)
        del pairs[best], places[best]
        merges.append(best)
    return Tokenizer(merges, vocab_size)


def _count(
    word: list[int], times: int, at: int, pairs: Counter[Pair], places: defaultdict[Pair, set[int]]
) -> None:
    for pair in zip(word, word[1:], strict=False):
        pairs[pair] += times
        places[pair].add(at)
