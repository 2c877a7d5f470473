"""What a user does with a model of any family, step by step: `python -m tools.model_runs NAME=FOLDER …`.

Also a table of which steps work, and of their seconds (`make models`). A folder that is missing is skipped.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from sentence_transformers import SentenceTransformer

import idiomtune as it
from idiomtune import Encoder
from idiomtune.data.usages import labelled_usages
from idiomtune.encoder.loading import model_settings, resolve_model_path
from idiomtune.glossaries import encoder as encoder_module

GLOSSARY = {"kick the bucket": "die", "spill the beans": "reveal a secret"}
TEXTS = ["He broke the ice with a joke.", "He made everybody relax."]
PAST = ("kicked the bucket", "spilled the beans")
CORPUS = [
    *(
        f"{who} {what} {when}."
        for who in ("She", "My uncle")
        for what in PAST
        for when in ("at last", "in May")
    ),
    *("The ice melts slowly.", "A cat slept on the mat.", "He reads the paper.", "It rained all day."),
]
_NUM_USAGES = 200  # of those that a gate is fitted to: all of them take minutes
_EXACT = 1e-5


class ModelRun:
    """The steps for one model, each a method, in their order.

    Args:
        model: a name, or a folder.
        folder: for what they write.
        options: of the section `model`, as overrides.
    """

    def __init__(self, model: str, folder: Path, options: Sequence[str] = ()) -> None:
        self.model, self.folder, self.run = model, folder, folder / "run"
        self.section = [f"model.{option}" for option in options]
        self.loading: dict[str, Any] = {
            name: text.strip("'") for name, text in (option.split("=") for option in options)
        }
        self.training = ["trainer.batch_size=16", "device=cpu", "benchmark=[idiolink]"]

    def check(self) -> None:
        it.check("idiolink_ft", *self.section, *self.training, data="sample", model=self.model)

    def train(self) -> None:
        options = {"data": "sample", "model": self.model, "run_dir": self.run}
        short = ["trainer.max_steps=2", "eval.every=2"]
        it.train("idiolink_ft", *self.section, *self.training, *short, **options)

    def resume(self) -> None:
        assert it.resume(self.run, "trainer.max_steps=3").status == "finished"

    def evaluate(self) -> None:
        scores = it.evaluate(self.run / "best", None, "device=cpu", data="sample")
        assert {key.partition("/")[0] for key in scores} >= {"idiolink", "semeval2022", "admire"}

    def learn_tokens(self) -> None:
        self._learn("tokens", steps=3)

    def learn_weights(self) -> None:
        corpus = self.folder / "corpus.txt"
        corpus.write_text("\n".join(CORPUS), encoding="utf-8")
        self._learn("weights", epochs=1, corpus=corpus)

    def _learn(self, into: str, **options: Any) -> None:
        output = self.folder / into
        few = {"sentences": 4, "output": output, "device": "cpu", "into": into, **options}
        it.learn(self.model, GLOSSARY, *self.section, "model.glossary_gate=false", **few)
        again = Encoder.from_pretrained(output, device="cpu")
        texts = [*TEXTS, "They spilled the beans."] if again.idiom_tokens is None else TEXTS
        assert torch.isfinite(again.encode(texts)).all()
        plain = SentenceTransformer(str(output), device="cpu").encode(texts, prompt=again.prompts.document)
        assert _difference(plain, again.encode(texts)) < 1e-4

    def glossary(self) -> None:
        encoder = self._load(glossary=GLOSSARY, glossary_gate=False)
        text = "He spilled the beans."
        assert not torch.equal(encoder.encode([text]), self._load().encode([text]))

    def gate(self) -> None:
        labelled = labelled_usages
        few = lambda *given, **options: labelled(*given, **options)[:_NUM_USAGES]  # noqa: E731
        with patch.object(encoder_module, "labelled_usages", few):
            encoder = self._load(glossary=GLOSSARY, glossary_gate=True)
            usages = encoder.usage(["He spilled the beans."], "spill the beans")
            assert all(0 <= usage <= 1 for usage in usages)

    def explore(self) -> None:
        page = self.folder / "page.html"
        it.explore(self.run, output=page, corpus="sample", device="cpu")
        assert page.stat().st_size > 10_000

    def push(self) -> None:
        it.push(self.run, "me/idioms", dry_run=True, allow_sample=True, license="mit")

    def snippets(self) -> None:
        """The snippets of the card give what is scored."""
        card = (self.run / "best" / "README.md").read_text(encoding="utf-8")
        encoder = Encoder.from_pretrained(self.run / "best", device="cpu")
        names: dict[str, Any] = {}
        for snippet in re.findall(r"```python\n(.*?)```", card, re.DOTALL):
            exec(snippet.replace("path/to/this/folder", str(self.run / "best")), names)
        sentences = encoder.encode(TEXTS)
        if "queries" in names:
            assert _difference(names["queries"], encoder.encode(TEXTS[:1], role="query")) < _EXACT
            sentences = sentences[1:]
        assert _difference(names["embeddings"], sentences) < _EXACT
        span = encoder.encode(TEXTS[:1], ["broke the ice"], role="query")[0]
        assert _difference(names["embedding"], span) < _EXACT
        assert all(prompt.strip() in card for prompt in (encoder.prompts.query, encoder.prompts.document))

    def _load(self, **options: Any) -> Encoder:
        return Encoder.from_pretrained(self.model, device="cpu", **self.loading, **options)


STEPS = [name for name, step in vars(ModelRun).items() if not name.startswith("_") and callable(step)]


def _difference(first: Any, second: Any) -> float:
    """The largest difference of a number, relative to the embeddings' lengths."""
    first, second = (torch.as_tensor(rows).float() for rows in (first, second))
    return float((first - second).abs().max() / second.norm(dim=-1).max())


def steps_of(run: ModelRun) -> dict[str, str]:
    """Step → its seconds, or why it failed; the others still run."""
    table = {}
    for name in STEPS:
        step: Callable[[], None] = getattr(run, name)
        start = time.perf_counter()
        try:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                step()
            table[name] = f"{time.perf_counter() - start:.1f} s"
        except Exception as error:
            table[name] = f"FAILED: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.model_runs", description=__doc__)
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER", help="FOLDER may be a model's name")
    tables: dict[str, dict[str, str]] = {}
    for given in parser.parse_args().models:
        name, _, model = given.partition("=")
        path = Path(resolve_model_path(model_settings(model, {}).path) if "/" not in model else model)
        if not path.is_dir():
            print(f"{name}: skipped, since there is no folder {path}: name it with {name.upper()}=")
            continue
        with tempfile.TemporaryDirectory() as folder:
            tables[name] = steps_of(ModelRun(model, Path(folder)))
        print(f"{name}: {tables[name]}", flush=True)
    width = max(map(len, STEPS)) + 2
    print("".ljust(width) + "".join(name.ljust(14) for name in tables))
    for step in STEPS:
        print(step.ljust(width) + "".join(table[step][:13].ljust(14) for table in tables.values()))
    return any(cell.startswith("FAILED") for table in tables.values() for cell in table.values())


if __name__ == "__main__":
    sys.exit(main())
