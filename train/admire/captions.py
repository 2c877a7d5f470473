"""Captions shortened to what CLIP can read: summarised by a model, or cut."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from train.admire import CaptionOptions
from train.admire.pretrained import load_pretrained
from train.data.admire import first_words
from train.errors import UserError
from train.io.files import write_text
from train.io.paths import cache_folder
from train.io.progress import progress_bar

log = logging.getLogger(__name__)


class Captions:
    """Captions as experts read them: of at most `words` words.

    A summary is the model's own (beam search, nothing is drawn), each caption alone, cut where it is still
    too long. Summaries are cached, in a folder for each model: a file for each set of captions, named by the
    SHA-256 of its content. So no caption is summarised twice, and a resumed run, whose record has the file's
    sum, reads the same summaries.

    If the summariser cannot be loaded, captions without a summary are cut; a warning and `note` say so.

    Args:
        options: the words of a caption, and the sequence-to-sequence model that summarises (BART); without
            one, captions are cut.
        device: of the summariser.

    Attributes:
        note: how captions are shortened, for the log and the record.
    """

    def __init__(self, options: CaptionOptions, device: str) -> None:
        self._options = options
        self._device = device
        self._summariser = options.summariser
        self.note = (
            f"captions cut after {options.words} words"
            if options.summariser is None
            else f"captions of more than {options.words} words summarised by {options.summariser}"
        )
        model = hashlib.sha256(json.dumps(options.model_dump()).encode()).hexdigest()[:16]
        self._folder = cache_folder() / "summaries" / model
        self._summaries: dict[str, str] = {}

    def __call__(self, caption: str) -> str:
        """A caption of at most `words` words; cut if it was not prepared."""
        return first_words(self._summaries.get(caption, caption), self._options.words)

    def prepare(self, captions: Iterable[str]) -> list[Path]:
        """Summarise those that are too long, unless the cache has them.

        Returns:
            The cached file of these summaries; none if captions are cut, or all short.
        """
        long = sorted({c for c in captions if len(c.split()) > self._options.words})
        if self._summariser is None or not long:
            return []
        self._summaries = self._summaries or self._cached()
        new = [caption for caption in long if caption not in self._summaries]
        try:
            self._summaries |= self._summarise(self._summariser, new) if new else {}
        except UserError as error:
            cut = f"{len(new)} captions cut after {self._options.words} words"
            self.note = f"{cut}: no summary by {self._summariser}"
            log.warning(
                "objective.captions.summariser=%s could not be loaded, %s: %s", self._summariser, cut, error
            )
            self._summariser = None
            return []
        content = json.dumps({caption: self._summaries[caption] for caption in long}, indent=1)
        path = self._folder / f"{hashlib.sha256(content.encode()).hexdigest()}.json"
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            write_text(path, content)
        return [path]

    def _cached(self) -> dict[str, str]:
        """The summaries of all undamaged files."""
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

        model, tokenizer = load_pretrained(path, self._options.revision, AutoModelForSeq2SeqLM, AutoTokenizer)
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
                summaries[caption] = first_words(text, self._options.words) or caption
                advance(1)
        return summaries
