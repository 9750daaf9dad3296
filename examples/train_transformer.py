"""Train a small transformer language model without ever holding its logits.

    python examples/train_transformer.py [--steps 300] [--memory least] [--device cuda]

The text is the documentation that every CPython carries. The last layer is the embedding again (tied weights), and it
lives in the loss: `LinearCrossEntropyLoss` takes features and targets, and logits of a batch never exist. They would
take batch · length · vocabulary numbers, three times over in training; the script says how much that is.
"""

import argparse
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from online_softmax.demo import text
from online_softmax.nn import LinearCrossEntropyLoss

LENGTH, FEATURES, HEADS, LAYERS = 64, 128, 4, 2
PADDING = -100  # targets with this value count for nothing


class Model(nn.Module):
    """A causal transformer that turns word numbers (batch, length) into features of the next word."""

    def __init__(self, vocabulary: int, memory: str = "fast") -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, FEATURES)
        self.places = nn.Embedding(LENGTH, FEATURES)
        layer = nn.TransformerEncoderLayer(
            FEATURES, HEADS, 4 * FEATURES, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(FEATURES), enable_nested_tensor=False)
        self.loss = LinearCrossEntropyLoss(FEATURES, vocabulary, memory=memory, ignore_index=PADDING)
        self.loss.linear.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=FEATURES**-0.5)
        self.register_buffer("future", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), persistent=False)

    def features(self, words: Tensor) -> Tensor:
        length = words.shape[1]
        x = self.words(words) * math.sqrt(FEATURES) + self.places.weight[:length]
        return self.layers(x, mask=self.future[:length, :length], is_causal=True)

    def forward(self, words: Tensor, following: Tensor) -> Tensor:
        return self.loss(self.features(words), following)


def rows(paragraphs: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Words and the words that follow, (paragraph pieces, LENGTH), short pieces padded."""
    words, following = [], []
    for paragraph in paragraphs:
        closed = [0, *paragraph, 0]
        for start in range(0, len(closed) - 1, LENGTH):
            piece = closed[start : start + LENGTH + 1]
            gap = LENGTH + 1 - len(piece)
            words.append(piece[:-1] + [0] * gap)
            following.append(piece[1:] + [PADDING] * gap)
    return torch.tensor(words), torch.tensor(following)


def train(model: Model, words: Tensor, following: Tensor, steps: int, batch: int) -> Iterator[float]:
    """One optimisation step after the other; gives each one's loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(steps):
        chosen = torch.randint(len(words), (batch,), device=words.device)
        loss = model(words[chosen], following[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss.item()


@torch.no_grad()
def perplexity(model: Model, words: Tensor, following: Tensor) -> float:
    """Of held-out text: without a gradient to make, the loss is one product and one pass."""
    model.eval()
    kept = (following != PADDING).sum()
    parts = zip(words.split(64), following.split(64), strict=True)
    total = sum(model.loss(model.features(w), f, num_items=kept) for w, f in parts)
    return math.exp(float(total))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--memory", choices=["fast", "least"], default="fast")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    words = text.load()
    training = [part.to(args.device) for part in rows(words.training)]
    held_out = [part.to(args.device) for part in rows(words.held_out)]
    model = Model(len(words.vocabulary), args.memory).to(args.device)
    logits = args.batch * LENGTH * len(words.vocabulary) * 4
    print(
        f"{len(words.vocabulary)} words; a batch's logits would be {logits / 1e6:.0f} MB, three times over in training"
    )
    for step, loss in enumerate(train(model, *training, args.steps, args.batch), 1):
        if step == 1 or step % 20 == 0 or step == args.steps:
            print(f"step {step}  loss {loss:.3f}")
    level = text.unigram_perplexity(words)
    print(f"held-out perplexity {perplexity(model, *held_out):.1f}; word frequencies alone reach {level:.1f}")


if __name__ == "__main__":
    main()
