"""AdMIRe's scorer: a sense classifier chooses which of two experts ranks an item's five images.

:class:`Scorer` chooses, and :class:`ExpertsBenchmark` scores it; `systems` has its two settings.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, get_args

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from train.admire import FILES, ScorerOptions
from train.admire.captions import Captions
from train.admire.pretrained import ClipTowers, SenseEncoder
from train.benchmarks import Embed, Result
from train.benchmarks.admire.keys import GOLD_SENSE, MAJORITY
from train.benchmarks.admire.scoring import add_order, add_scores
from train.config import Common
from train.data import astitch
from train.data.admire import NUM_IMAGES, Item, ItemSplit
from train.data.astitch import UsageCorpus, read_usages
from train.data.names import ADMIRE_SENSES, AdmireSplit, AStitchSplit, unseen_astitch
from train.errors import DataMissingError
from train.factory.data import admire_split, data_files
from train.io.files import write_json
from train.requests import Request

log = logging.getLogger(__name__)

_ITEMS_AT_ONCE = 8


class Scores(NamedTuple):
    """What a scorer gives for Q items.

    Attributes:
        sense: logits (Q, 2), idiomatic and literal.
        vectors: sense vectors (Q, D).
        by_expert: (2, Q, 5), the scores that the idiomatic and the literal expert give the images.
    """

    sense: Tensor
    vectors: Tensor
    by_expert: Tensor

    def routed(self, sense: Tensor) -> Tensor:
        """(Q, 5): each item's scores by the expert of its sense, int (Q,), 0 = idiomatic."""
        return self.by_expert[sense, torch.arange(len(sense), device=sense.device)]


class Inputs(NamedTuple):
    """Vectors by which an expert ranks the images of Q items.

    Attributes:
        sentences: (Q, W).
        candidates: captions and images, or one of them, each (Q, 5, W); images last.
    """

    sentences: Tensor
    candidates: list[Tensor]


class Scorer(nn.Module, ABC):
    """The sense classifier, the idiomatic and the literal expert.

    The run's encoder embeds what tells an item's sense. The idiomatic expert ranks by a sense vector, the
    sentence, the caption and the image; the literal one by the same without the sense vector. The predicted
    sense chooses between them; in training the gold sense does.

    Args:
        options: see :class:`train.admire.ScorerOptions`.
        width: D, of the encoder's embeddings.
        captions: shorten captions; None if experts see images alone.
        towers: CLIP, which embeds sentences, captions and images: none, one, or one for each expert. Without
            CLIP there are no images, and the encoder embeds sentences and captions.

    References:
        Rasouli et al. 2025, AIMA at SemEval-2025 Task 1.
    """

    scored_by = "admire"
    system: ClassVar[str]  # in experts.json
    section: ClassVar[type[ScorerOptions]]  # those of an objective's options that are saved with it
    num_sense_requests = 1
    idiomatic: nn.Module
    literal: nn.Module | None  # None = the cosine of the sentence with the last candidate vector

    def __init__(
        self, options: ScorerOptions, width: int, captions: Captions | None, towers: Sequence[ClipTowers]
    ) -> None:
        super().__init__()
        self.options = options
        self.width = width
        self.captions = captions
        self.towers = list(towers)  # each system names those that it trains
        self.sense_encoder: SenseEncoder | None = None

    @property
    def pretrained(self) -> nn.Module:
        """The trained parts that are pretrained."""
        return nn.ModuleList(
            [*self.towers, *([self.sense_encoder.transformer] if self.sense_encoder else [])]
        )

    def sense_text(self, phrase: str, sentence: str) -> str:
        """The text that shows in which sense a compound is used."""
        return f"{phrase} {self.options.separator} {sentence}"

    def sense_requests(self, phrase: str, sentence: str, span: tuple[int, int] | None) -> list[Request]:
        """What the encoder embeds for a compound's sense: `num_sense_requests`."""
        del span
        return [Request(self.sense_text(phrase, sentence))]

    def item_requests(self, item: Item) -> list[Request]:
        """What the encoder embeds for an item: equally many requests for each.

        First those for its sense; without CLIP then its sentence, and the captions.
        """
        requests = self.sense_requests(item.compound, item.sentence, item.span)
        if not self.towers:
            requests.append(Request(item.sentence, role="query"))
            requests += [Request(caption) for caption in self._captions_of([item])]
        return requests

    @abstractmethod
    def sense(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors (N, D) and logits (N, 2) from the embeddings (N, S, D) of S sense requests each."""

    @abstractmethod
    def sense_inputs(self, items: Sequence[Item], vectors: Tensor | None) -> Tensor | None:
        """The sense vectors (Q, W) that the idiomatic expert sees; None if it sees none.

        Args:
            vectors: (Q, D), those of the classifier.
        """

    def forward(self, items: Sequence[Item], embeddings: Tensor) -> Scores:
        """Scores of Q items from embeddings (Q, R, D), row [i, j] for `item_requests(items[i])[j]`."""
        vectors, logits = self.sense(embeddings[:, : self.num_sense_requests])
        rest = embeddings[:, self.num_sense_requests :].to(vectors.device, vectors.dtype)
        inputs = [self.see(towers, items) for towers in self.towers] or [Inputs(rest[:, 0], [rest[:, 1:]])]
        ranked = [self.rank(number, items, inputs[number % len(inputs)], vectors) for number in (0, 1)]
        return Scores(logits, vectors, torch.stack(ranked))

    def see(self, towers: ClipTowers, items: Sequence[Item]) -> Inputs:
        """What CLIP's towers make of the items' sentences, captions and images."""
        embedded = towers.texts([*(item.sentence for item in items), *self._captions_of(items)])
        images = towers.images([c.path for item in items for c in item.candidates if c.path is not None])
        candidates = [*([embedded[len(items) :]] if self.captions else []), images]
        shape = (len(items), NUM_IMAGES, towers.width)
        return Inputs(embedded[: len(items)], [each.view(shape) for each in candidates])

    def rank(
        self, number: int, items: Sequence[Item], inputs: Inputs, vectors: Tensor | None = None
    ) -> Tensor:
        """(Q, 5), the scores that an expert gives the items' images.

        Args:
            number: of the expert, 0 = idiomatic, 1 = literal.
            vectors: as :meth:`sense_inputs` takes them.
        """
        sentences, candidates = inputs
        expert = (self.idiomatic, self.literal)[number]
        if expert is None:
            return functional.cosine_similarity(sentences[:, None], candidates[-1], dim=2)
        sense = self.sense_inputs(items, vectors) if number == 0 else None
        scores: Tensor = expert([sentences] if sense is None else [sense, sentences], candidates)
        return scores

    def _captions_of(self, items: Sequence[Item]) -> list[str]:
        return [self.captions(c.caption) for item in items for c in item.candidates] if self.captions else []

    def prepare(self, items: Sequence[Item]) -> list[Path]:
        """Summarise the items' captions, where that is done; returns the files of the summaries."""
        return self.captions.prepare(c.caption for i in items for c in i.candidates) if self.captions else []

    def benchmark(self, settings: Common) -> ExpertsBenchmark:
        """On the splits of AdMIRe that are scored, and those of AStitch that taught it nothing."""
        wanted, has_images = settings.splits("admire"), bool(self.towers)
        names = [name for name in get_args(AdmireSplit) if name in wanted]
        splits = [admire_split(settings, name, check_images=has_images) for name in names]
        usages: dict[AStitchSplit, UsageCorpus] = {}
        try:
            files = data_files(settings, astitch.FILES)
            usages = {
                split: read_usages(files, ["dev" if split == "astitch_dev" else "test"])
                for split in unseen_astitch(self.options.astitch or ())
            }
        except DataMissingError as error:
            log.warning("the sense classifier is NOT SCORED on AStitchInLanguageModels: %s", error)
        return ExpertsBenchmark(self, splits, usages)

    def publish(self, folder: Path) -> None:
        """Write `experts/` into a model's folder: weights as safetensors, options as JSON."""
        options_file, weights_file = (folder / name for name in FILES)
        options_file.parent.mkdir(parents=True, exist_ok=True)
        save_file({k: t.detach().cpu().contiguous() for k, t in self.state_dict().items()}, weights_file)
        options = self.options.model_dump(include=set(self.section.model_fields))
        write_json(options_file, {"system": self.system, "width": self.width, "options": options})


class ExpertsBenchmark:
    """Ranks items' images by the expert of the predicted sense, and scores the prediction of senses.

    `experts_text` or `experts_image` is the whole system. With the suffix `_gold_sense`, items go to their
    expert by the gold sense: the slice `/idiomatic` is the idiomatic expert alone, `/literal` the literal
    one. `majority` is the sense accuracy of always predicting the split's most frequent sense.

    It holds the module that is trained, so it always scores the experts as they are.

    Args:
        scorer: put into evaluation mode while it scores, then back.
        splits: of items, as :class:`train.benchmarks.admire.scoring.AdmireBenchmark` takes them.
        usages: sentences of AStitchInLanguageModels whose sense is predicted, by split.

    References:
        Rasouli et al. 2025, AIMA at SemEval-2025 Task 1: tables 1 and 2.
    """

    name = "admire"
    takes_whole_embeddings = True  # the experts are of their width

    def __init__(
        self, scorer: Scorer, splits: Sequence[ItemSplit], usages: Mapping[AStitchSplit, UsageCorpus]
    ) -> None:
        self.scorer = scorer
        self.splits = list(splits)
        self.usages = usages
        items = [item for split in splits for item in split.items]
        self.files: list[Path] = [path for split in splits for path in split.files]
        self.files += [path for corpus in usages.values() for path in corpus.files]
        self.files += scorer.prepare(items)
        self.without_gold = [split.name for split in splits if not split.has_gold]

    @property
    def announced(self) -> list[Request]:
        """What the scorer reads of items, and of sentences."""
        items = [request for split in self.splits for request in self._of_items(split)]
        return items + [request for corpus in self.usages.values() for request in self._of_usages(corpus)]

    def _of_items(self, split: ItemSplit) -> list[Request]:
        return [request for item in split.items for request in self.scorer.item_requests(item)]

    def _of_usages(self, corpus: UsageCorpus) -> list[Request]:
        return [
            request
            for usage in corpus.usages
            for request in self.scorer.sense_requests(usage.phrase, usage.sentence, usage.span)
        ]

    def score(self, embed: Embed) -> Result:
        """The scores of all splits, and predictions for them."""
        was_training = self.scorer.training
        self.scorer.eval()
        try:
            with torch.no_grad():
                return self._score(embed)
        finally:
            self.scorer.train(was_training)

    def _score(self, embed: Embed) -> Result:
        result = Result()
        if self.usages and self.scorer.options.astitch is None:
            result.notes.append(
                f"{', '.join(self.usages)}: an earlier version saved these experts without the names of "
                "AStitch's files that taught them, which may hold compounds that are scored here."
            )
        mode = self.scorer.options.mode
        for split in self.splits:
            asked = self._of_items(split)
            rows = embed(asked).view(len(split.items), len(asked) // len(split.items), -1)  # (Q, R, D)
            parts = [
                self.scorer(split.items[i : i + _ITEMS_AT_ONCE], rows[i : i + _ITEMS_AT_ONCE])
                for i in range(0, len(split.items), _ITEMS_AT_ONCE)
            ]
            sense, vectors, by_expert = zip(*parts, strict=True)
            scores = Scores(torch.cat(sense), torch.cat(vectors), torch.cat(by_expert, 1))
            predicted = scores.sense.argmax(1)
            records = add_order(split, mode, scores.routed(predicted).double().cpu(), result)
            for record, number in zip(records, predicted.tolist(), strict=True):
                record["predicted_sense"] = ADMIRE_SENSES[number]
            if any(item.sense is None for item in split.items):
                continue
            gold = torch.tensor([int(item.sense == "literal") for item in split.items])
            by_gold_sense = scores.routed(gold.to(predicted.device)).double().cpu()
            add_order(split, f"{mode}_{GOLD_SENSE}", by_gold_sense, result)
            ids = [(item.id, item.compound) for item in split.items]
            result.per_query.extend(
                _senses(split.name, MAJORITY, ids, gold.mode().values.expand(len(gold)), gold)
            )
        for name, corpus in self.usages.items():
            width = self.scorer.num_sense_requests
            rows = embed(self._of_usages(corpus)).view(len(corpus.usages), width, -1)
            predicted = self.scorer.sense(rows)[1].argmax(1)
            gold = torch.tensor([int(not usage.is_idiomatic) for usage in corpus.usages])
            ids = [(f"astitch_{usage.id}", usage.phrase) for usage in corpus.usages]
            result.per_query.extend(_senses(name, mode, ids, predicted, gold))
            result.per_query.extend(_senses(name, MAJORITY, ids, gold.mode().values.expand(len(gold)), gold))
        add_scores(result)
        return result


def _senses(
    split: str, mode: str, ids: Sequence[tuple[str, str]], predicted: Tensor, gold: Tensor
) -> list[dict[str, Any]]:
    """Records of ids and compounds, with their senses, from int (N,) and (N,), 0 = idiomatic."""
    return [
        {
            "split": split,
            "mode": mode,
            "id": id_,
            "compound": compound,
            "sense": ADMIRE_SENSES[is_literal],
            "predicted_sense": ADMIRE_SENSES[given],
        }
        for (id_, compound), given, is_literal in zip(ids, predicted.tolist(), gold.tolist(), strict=True)
    ]
