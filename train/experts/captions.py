"""Captions shortened to what CLIP can read: summarised by a model, or cut."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from train.data.admire import first_words
from train.errors import UserError
from train.experts.loading import load_pretrained
from train.io.files import write_text
from train.io.progress import progress_bar

log = logging.getLogger(__name__)

FOLDER = "summaries"  # in the cache


@dataclass(frozen=True)
class CaptionOptions:
    """How captions are shortened.

    Attributes:
        words: a caption has at most so many; one that has no more stays as it is.
        summariser: folder or Hub id of a sequence-to-sequence model (BART); None = captions are cut.
        revision: branch, tag or commit of it on the Hub.
    """

    words: int
    summariser: str | None = None
    revision: str | None = None


class Captions:
    """Captions as experts read them.

    A summary is the model's own (beam search, nothing is drawn), each caption alone, cut where it is still
    too long. Summaries are kept in the cache, in a folder for each model: a file for each set of captions,
    named by the SHA-256 of its content. So no caption is summarised twice, and the record of a run, which
    holds the file's sum, tells whether a resumed run reads the same.

    Where the summariser cannot be loaded, captions without a summary are cut; a warning and `note` say so.

    Args:
        options: see :class:`CaptionOptions`.
        cache: where summaries are kept.
        device: of the summariser.
    """

    def __init__(self, options: CaptionOptions, cache: Path, device: str = "cpu") -> None:
        self.options = options
        self._device = device
        model = json.dumps(asdict(options))
        self._folder = cache / FOLDER / hashlib.sha256(model.encode()).hexdigest()[:16]
        self._summaries: dict[str, str] | None = None  # None = the cache was not read yet
        self._problem = ""
        self._num_cut = 0

    def __call__(self, caption: str) -> str:
        """A caption of at most `words` words; cut if it was not prepared."""
        summary = (self._summaries or {}).get(caption, caption)
        return first_words(summary, self.options.words)

    def prepare(self, captions: Iterable[str]) -> list[Path]:
        """Summarise those that are too long, unless the cache has them.

        Returns:
            The cache's file of these summaries; none if captions are cut, or all short.
        """
        long = sorted({c for c in captions if len(c.split()) > self.options.words})
        if self.options.summariser is None or not long:
            return []
        if self._summaries is None:
            self._summaries = self._cached()
        new = [caption for caption in long if caption not in self._summaries]
        if new and not self._problem:
            try:
                self._summaries |= self._summarise(self.options.summariser, new)
                new = []
            except UserError as error:
                self._problem = str(error)
        if new:
            self._num_cut += len(new)
            log.warning(
                "objective.captions.summariser=%s could not be loaded: %d captions CUT after %d words: %s",
                *(self.options.summariser, len(new), self.options.words, self._problem),
            )
            return []
        content = json.dumps({caption: self._summaries[caption] for caption in long}, indent=1)
        path = self._folder / f"{hashlib.sha256(content.encode()).hexdigest()}.json"
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            write_text(path, content)
        return [path]

    @property
    def note(self) -> str:
        """How captions are shortened, for the log and the record."""
        words = self.options.words
        if self.options.summariser is None:
            return f"captions cut after {words} words"
        if self._num_cut:
            return (
                f"{self._num_cut} captions cut after {words} words: no summary by {self.options.summariser}"
            )
        return f"captions of more than {words} words summarised by {self.options.summariser}"

    def _cached(self) -> dict[str, str]:
        """The summaries of all files that are what was written."""
        summaries: dict[str, str] = {}
        for path in sorted(self._folder.glob("*.json")):
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() == path.stem:
                summaries |= json.loads(content)
            else:
                log.warning("%s: is damaged, so its captions are summarised again", path)
        return summaries

    @torch.no_grad()
    def _summarise(self, path: str, captions: Sequence[str]) -> dict[str, str]:
        """Raises UserError if the summariser cannot be loaded."""
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        model: Any
        model, tokenizer = load_pretrained(path, self.options.revision, AutoModelForSeq2SeqLM, AutoTokenizer)
        model.to(self._device).eval()
        limit: int = model.config.max_position_embeddings
        summaries = {}
        log.info("summarising %d captions by %s", len(captions), path)
        with progress_bar("summarising", len(captions)) as advance:
            for caption in captions:
                tokens = tokenizer(caption, truncation=True, max_length=limit, return_tensors="pt")
                inputs = {name: tokens[name].to(self._device) for name in ("input_ids", "attention_mask")}
                written = model.generate(**inputs, do_sample=False, num_beams=4)
                text = tokenizer.decode(written[0], skip_special_tokens=True)
                summaries[caption] = first_words(text, self.options.words) or caption
                advance(1)
        return summaries
