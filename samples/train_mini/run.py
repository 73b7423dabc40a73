"""Trains ``mini`` and its draft on the documentation that comes with Python, and decodes with them.

On one H200 some minutes; on a CPU it runs too, a few steps of it (``--steps 2``), to see that all parts fit.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from corpus import texts
from draft import Draft
from learn_merges import learn
from target import Target
from torch import Tensor, nn
from torch.nn import functional

from musetrace.muse.checkpoint.writing import write_draft, write_model
from musetrace.muse.config import MuseConfig, preset
from musetrace.muse.draft.config import DRAFT_ROWS, DraftConfig, draft_of
from musetrace.muse.engine import Engine
from musetrace.muse.generation import Generation
from musetrace.muse.tokenizer import Tokenizer

PROMPT = "The for statement is used to iterate over the elements of a sequence"
# Of the text, kept back to see how well the model does on what it has not seen.
_HELD_OUT = 0.02
_WARM_UP = 0.05
# Of the steps, at the end, with the experts rounded as they will be.
_QUANTISED = 0.3


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", default="mini-weights", help="folder for the weights")
    parser.add_argument("--steps", type=int, default=3000, help="of the target (default 3000)")
    parser.add_argument("--draft-steps", type=int, default=4000, help="of the draft (default 4000)")
    parser.add_argument("--seconds", type=float, default=240, help="at most, for each model (default 240)")
    parser.add_argument("--batch", type=int, default=48, help="texts in a step (default 48)")
    parser.add_argument("--positions", type=int, default=256, help="tokens of a text (default 256)")
    parser.add_argument("--blocks", type=int, default=12, help="draft blocks in a text (default 12)")
    parser.add_argument("--texts", type=int, help="use the first so many texts only")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default cuda")
    parser.add_argument("--new-tokens", type=int, default=120, help="to decode at the end (default 120)")
    return parser.parse_args(arguments)


class Batches:
    """Random pieces of a text of tokens int64[n]."""

    def __init__(self, tokens: Tensor, batch: int, positions: int, seed: int) -> None:
        self._tokens, self._shape = tokens, (batch, positions)
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[Tensor]:
        batch, positions = self._shape
        while True:
            starts = torch.randint(len(self._tokens) - positions, (batch, 1), generator=self._generator)
            yield self._tokens[(starts + torch.arange(positions)).to(self._tokens.device)]


class Course:
    """How far a training has come: by its steps or by its time, whichever is further."""

    def __init__(self, steps: int, seconds: float) -> None:
        self._steps, self._seconds, self._begin = steps, seconds, time.monotonic()

    @property
    def seconds(self) -> float:
        """Since its begin."""
        return time.monotonic() - self._begin

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """Steps, each with the share of the training that lies before it; the last one is the last."""
        for step in range(self._steps):
            done = max(step / self._steps, self.seconds / self._seconds)
            if done >= 1:
                return
            yield step, done


def rate_at(done: float) -> float:
    """The share of the learning rate: a short rise, then half a cosine down to a twentieth."""
    if done < _WARM_UP:
        return (done + 0.001) / (_WARM_UP + 0.001)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (done - _WARM_UP) / (1 - _WARM_UP)))


def optimiser(model: nn.Module, rate: float) -> torch.optim.AdamW:
    """AdamW, with decay of the matrices alone."""
    matrices = [one for one in model.parameters() if one.dim() > 1]
    vectors = [one for one in model.parameters() if one.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))


def descend(model: nn.Module, adam: torch.optim.AdamW, rate: float, loss: Tensor) -> None:
    """One step down."""
    for group in adam.param_groups:
        group["lr"] = rate
    adam.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()


def half_precision(device: str) -> torch.autocast:
    """Products in bf16 where that is faster."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=device != "cpu")


def next_token_loss(target: Target, ids: Tensor) -> Tensor:
    """Mean cross entropy, in nats a token."""
    logits, _ = target(ids[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train_target(target: Target, batches: Batches, held_out: Tensor, course: Course, device: str) -> None:
    """The target on the text; prints what it has learned."""
    rate = 2e-3
    adam = optimiser(target, rate)
    for (step, done), ids in zip(course, batches, strict=False):
        target.quantise = done >= 1 - _QUANTISED
        with half_precision(device):
            loss = next_token_loss(target, ids)
        descend(target, adam, rate * rate_at(done), loss)
        if step % 100 == 0:
            print(f"target {step:5} loss {loss:.3f}, {course.seconds:.0f} s", flush=True)
    target.quantise = True
    target.eval().requires_grad_(False)
    with torch.no_grad(), half_precision(device):
        unseen = next_token_loss(target, held_out)
    print(f"target   end loss {loss:.3f}, unseen text {unseen:.3f}, {course.seconds:.0f} s", flush=True)


def draft_loss(draft: Draft, target: Target, ids: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
    """How far the guesses are from what the target says of these tokens, near ones first, and right ones.

    Returns:
        The loss, and the mean number of guesses in a row that are the target's own choice.
    """
    with torch.no_grad():
        logits, states = target(ids)
        features = torch.cat([states[layer] for layer in draft.config.target_layer_ids], dim=-1)
    last = ids.shape[1] - DRAFT_ROWS
    roots = torch.randint(1, last + 1, (blocks,), device=ids.device)
    guesses = draft(target, ids, features, roots)
    # Row i guesses the token at root + i, of which the target speaks at root + i - 1.
    says = logits[:, roots[:, None] + torch.arange(DRAFT_ROWS - 1, device=ids.device)]
    near = 0.85 ** torch.arange(DRAFT_ROWS - 1, device=ids.device)
    losses = functional.kl_div(
        guesses.log_softmax(-1), says.log_softmax(-1), log_target=True, reduction="none"
    ).sum(-1)
    right = (guesses.argmax(-1) == says.argmax(-1)).int().cumprod(-1).sum(-1).float().mean()
    return (losses * near).mean(), right


def train_draft(
    draft: Draft, target: Target, batches: Batches, course: Course, blocks: int, device: str
) -> None:
    """The draft on what the target says; prints how many guesses in a row are right."""
    rate = 1.5e-3
    adam = optimiser(draft, rate)
    for (step, done), ids in zip(course, batches, strict=False):
        with half_precision(device):
            loss, right = draft_loss(draft, target, ids, blocks)
        descend(draft, adam, rate * rate_at(done), loss)
        if step % 100 == 0:
            print(f"draft  {step:5} loss {loss:.3f}, {right:.2f} right in a row", flush=True)
    print(f"draft    end loss {loss:.3f}, {right:.2f} right in a row, {course.seconds:.0f} s", flush=True)
    draft.eval()


def decode(
    folder: Path, tokenizer: Tokenizer, new_tokens: int, config: MuseConfig, draft: DraftConfig
) -> None:
    """What the engine makes of the weights, and how many tokens a step decodes."""
    engine = Engine(config, device="cpu", tp=1, blocks=2, checkpoint=folder, draft=draft)
    prompt = tokenizer.encode(PROMPT)
    generation = Generation(engine, prompt, new_tokens)
    made, steps = [generation.first_token], 0
    while len(made) < new_tokens:
        made += generation.step()
        steps += 1
    print(f"{PROMPT}|{tokenizer.decode(made)}")
    print(f"{len(made) - 1} tokens in {steps} steps: {(len(made) - 1) / max(1, steps):.2f} a step")


def train(told: argparse.Namespace, config: MuseConfig, draft_config: DraftConfig) -> None:
    """Train a target and its draft, write them, decode with them."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    folder = Path(told.output)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = list(islice(texts(), told.texts))
    tokenizer = learn(chosen, config.vocab_size)
    tokenizer.save(folder)
    tokens = torch.tensor([token for text in chosen for token in (*tokenizer.encode(text), tokenizer.end_id)])
    print(f"{sum(map(len, chosen)):,} characters, {len(tokens):,} tokens", flush=True)
    kept_back = max(told.positions, int(len(tokens) * _HELD_OUT))
    tokens, held_out = tokens[:-kept_back].to(told.device), tokens[-kept_back:].to(told.device)
    held_out = held_out[: len(held_out) // told.positions * told.positions].unflatten(0, (-1, told.positions))
    target = Target(config).to(told.device)
    batches = Batches(tokens, told.batch, told.positions, 1)
    train_target(target, batches, held_out[:32], Course(told.steps, told.seconds), told.device)
    write_model(folder, target.exported())
    draft = Draft(draft_config).to(told.device)
    batches = Batches(tokens, max(1, told.batch // 2), told.positions, 2)
    train_draft(draft, target, batches, Course(told.draft_steps, told.seconds), told.blocks, told.device)
    write_draft(folder / "draft", draft.exported())
    document = {"prompt": PROMPT, "steps": told.steps, "draft_steps": told.draft_steps}
    (folder / "training.json").write_text(json.dumps(document), encoding="utf-8")
    decode(folder, tokenizer, told.new_tokens, config, draft_config)


if __name__ == "__main__":
    asked = options()
    if asked.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch finds no CUDA device")
    train(asked, preset("mini"), draft_of(preset("mini")))
