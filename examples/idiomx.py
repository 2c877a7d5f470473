"""IdiomX's task 2 for the benchmark `own_retrieval`: which idiom does a sentence contain?

python examples/idiomx.py [data set of the Hub, or file] [output folder]

Queries and idioms are those of the author's notebook `Task2_Context_to_Idiom_Benchmark`: the sentences of a
fifth of the idioms search for theirs among all idioms, each with its meaning and three sentences.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from idiomtune.data.user.source import find_sources

TASK = "hf:aymansharara/IdiomX/task2_idiomx_retrieval_dataset:task2_idiomx_retrieval_clean"
FIELDS = {
    "meaning": "idiom_canonical_meaning",
    "paraphrase": "meaning_paraphrases_en",
    "explanation": "idiom_level_explanation_en",
}


def main(data: str = TASK, output: str = "out/idiomx") -> None:
    rows = [row.values for source in find_sources([data], "data") for row in source.rows()]
    sentences: dict[str, list[str]] = {}
    known: dict[str, dict[str, str]] = {}
    queries: list[tuple[str, str]] = []
    for row in rows:
        idiom = row["idiom_canonical"]
        sentence = re.sub(r"\b(literal|idiomatic)\b", "", row["example_normalized"]).strip()
        sentences.setdefault(idiom, []).append(sentence)
        texts = known.setdefault(idiom, {})
        for name, column in FIELDS.items():
            texts[name] = texts.get(name) or str(row[column] or "").strip()
        if row["example_usage_label"] == "idiomatic":
            queries.append((idiom, sentence))
    idioms = list(dict.fromkeys(idiom for idiom, _ in queries))
    np.random.RandomState(42).shuffle(idioms)  # as the notebook draws them
    tested = set(idioms[int(len(idioms) * 0.8) :])
    numbers = {idiom: f"i{number}" for number, idiom in enumerate(known)}
    asked = [(f"q{number}", idiom, text) for number, (idiom, text) in enumerate(queries) if idiom in tested]
    folder = Path(output)
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = (
        {"_id": number, "text": document(idiom, known[idiom], sentences[idiom][:3])}
        for idiom, number in numbers.items()
    )
    write(folder / "corpus.jsonl", documents)
    write(folder / "queries.jsonl", ({"_id": id_, "text": text} for id_, _, text in asked))
    judged = "".join(f"{id_}\t{numbers[idiom]}\t1\n" for id_, idiom, _ in asked)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}", encoding="utf-8")


def document(idiom: str, texts: Mapping[str, str], sentences: Iterable[str]) -> str:
    """The text of an idiom that is searched; it begins with the idiom twice, as in the notebook."""
    parts = [
        ("idiom", idiom.strip()),
        ("idiom", idiom.strip()),
        *texts.items(),
        ("usage", " ".join(sentences)),
    ]
    return " ".join(". ".join(f"{name}: {text}" for name, text in parts).split())


def write(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
