"""Planted mistakes of size: what would be slow, endless or fill the memory is refused, with the remedy."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.mistakes import OWN, PAIRS, Mistake, run_mistake, run_sound
from tests.programs import run
from tests.tiny_runs import composed
from train.config import TrainSettings, check
from train.encoder.glossary import read_glossary, saved_meanings
from train.encoder.idiom_tokens import read_expressions
from train.errors import UserError
from train.expressions import expression_pattern
from train.io.tables import read_rows
from train.programs.prepare import prepare

TRAIN = {"train.csv": PAIRS}
MIXTURE = ("+experiment=mixture", "device=cpu", "data.val_share=0.25", "benchmark=[own_val]")
# Each of the 14 may be filled by up to five words, and all words between them are alike.
PLACEHOLDERS = "take " + "the someone " * 14 + "home"
# oneDNN is told to know no instruction beyond AVX2, as on a processor that has none.
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
LIMIT = 10_000_000  # characters of a line or cell


def parts(**proportions: str) -> list[str]:
    """A mixture of parts on one file, with these proportions."""
    return [
        *MIXTURE,
        *(f"+objective.parts.{name}.data.train=train.csv" for name in proportions),
        *(f"+objective.parts.{name}.proportion={value}" for name, value in proportions.items()),
    ]


MISTAKES = [
    Mistake("a part of no steps", parts(a="1", b="1e-300"), ["part b", "proportion=1e-300", "0.001"], TRAIN),
    Mistake("a part of few steps", parts(a="1e4", b="1"), ["part b", "proportion=1", "0.001"], TRAIN),
    Mistake(
        "placeholders in a glossary",
        [*OWN, "model.glossary=words.csv"],
        ["words.csv", "row 3", "expression", "14 placeholders", "may have 4"],
        TRAIN | {"words.csv": f"expression,meaning\nbreak the ice,relax\n{PLACEHOLDERS},x\n"},
    ),
    Mistake(
        "placeholders in an option",
        [*OWN, f"model.idiom_tokens=['{PLACEHOLDERS}']"],
        ["model.idiom_tokens", "14 placeholders", "may have 4"],
        TRAIN,
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_refused(mistake: Mistake, tmp_path: Path, tiny_path: Path) -> None:
    run_mistake(mistake, tmp_path, tiny_path)


@pytest.mark.parametrize(
    "options",
    [
        parts(a="100", b="0.1"),
        parts(a="1e-300"),
        [*OWN, "model.glossary=words.csv"],
        [*OWN, "precision=auto"],
    ],
    ids=["a rare part", "one part", "four placeholders", "precision"],
)
def test_a_sound_neighbour_is_not_refused_or_warned_about(
    options: list[str], tmp_path: Path, tiny_path: Path
) -> None:
    four = "take " + "the someone " * 4 + "home"
    files = TRAIN | {"words.csv": f"expression,meaning\n{four},x\nSchnee von gestern,old news\n"}
    done = run_sound(options, tmp_path, tiny_path, files)
    assert done.returncode == 0, done.stderr
    assert "in order" in done.stdout
    for word in ("warning", "precision=bf16", "must be", "placeholders"):
        assert word not in done.stdout + done.stderr


def test_placeholders_in_a_file_of_expressions_and_in_a_saved_glossary(tmp_path: Path) -> None:
    (tmp_path / "idioms.txt").write_text(f"home run\n{PLACEHOLDERS}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"idioms\.txt, line 2: .* 14 placeholders"):
        read_expressions(tmp_path / "idioms.txt")
    saved = {"format": 1, "num_senses": 1, "about": {}, "senses": {PLACEHOLDERS: ["x"]}}
    with pytest.raises(ValueError, match="14 placeholders"):
        saved_meanings(saved, None)


# ------------------------------------------------------------------ precision


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("train.check", OWN),
        ("train", [*OWN, "trainer.max_steps=1", "benchmark=[own_val]", "run_dir=run"]),
        ("train.evaluate", ["data=sample", "benchmark=[semeval2022]", "split=dev", "device=cpu"]),
    ],
    ids=["check", "train", "evaluate"],
)
def test_bf16_without_instructions_for_it_is_warned_of_in_the_first_lines(
    program: str, options: list[str], tmp_path: Path, tiny_path: Path
) -> None:
    (tmp_path / "train.csv").write_text(PAIRS, encoding="utf-8")
    model = [f"model={tiny_path}"]
    done = run(program, *options, *model, "precision=bf16", cwd=tmp_path, environment=AVX2)
    assert done.returncode == 0, done.stderr
    first = "\n".join(done.stderr.splitlines()[:4])
    assert "precision=bf16: this processor has no bfloat16 instructions" in first
    assert "use precision=fp32" in first


# ------------------------------------------------------------------ tables

HUGE: dict[str, Callable[[str], bytes]] = {
    "t.jsonl.gz": lambda text: b'{"id": 1, "text": "' + text.encode() + b'"}\n',
    "t.csv.gz": lambda text: b"id,text\n1," + text.encode() + b"\n",
    "t.jsonl": lambda text: b'{"id": 1, "text": "' + text.encode() + b'"}\n',
}


@pytest.mark.parametrize("name", HUGE)
def test_a_line_that_would_fill_the_memory_is_refused_and_long_ones_are_read(
    name: str, tmp_path: Path
) -> None:
    """In a packed file of 30 kB as well; a cell of CSV may be as long as a value of JSON lines."""
    pack = gzip.compress if name.endswith(".gz") else bytes
    path = tmp_path / name
    path.write_bytes(pack(HUGE[name]("a" * 3 * LIMIT)))
    with pytest.raises(UserError, match=rf"{name}, line [12]: has more than 10,000,000 bytes"):
        list(read_rows(path))
    path.write_bytes(pack(HUGE[name]("a" * 500_000)))
    (row,) = read_rows(path)
    assert len(row.values["text"]) == 500_000


def test_a_glossarys_patterns_are_compiled_where_their_words_are_met(tmp_path: Path) -> None:
    """A pattern takes about a millisecond: for each of 50,000 rows it was a minute."""
    letters = "abcdefghijklmnopqrst"
    names = [f"{a}{b}x schön-{c}y" for a in letters for b in letters for c in "abc"]
    rows = "".join(f"{name},meaning {i}\n" for i, name in enumerate(names))
    (tmp_path / "words.csv").write_text(f"expression,meaning\n{rows}", encoding="utf-8")
    before = expression_pattern.cache_info().misses
    glossary = read_glossary([tmp_path / "words.csv"])
    assert len(glossary.senses) == 1200
    assert expression_pattern.cache_info().misses - before < 5


# ------------------------------------------------------------------ jobs of one process


def test_the_next_job_of_a_process_reads_its_files_again(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a search holds no job's tables, and none is trained on rows that are gone."""
    monkeypatch.chdir(tmp_path)
    model = ["model=pretrained", f"model.path={tiny_path}"]
    settings: TrainSettings = check(TrainSettings, composed("config", *OWN, *model, "trainer.batch_size=32"))
    described: list[Any] = []
    for num_rows in (48, 24):
        rows = PAIRS.splitlines(keepends=True)[: num_rows + 1]
        (tmp_path / "train.csv").write_text("".join(rows), encoding="utf-8")
        described.append(len(prepare(settings).objective.epoch_steps(0, 1)))
    assert described == [2, 1]  # of 36 and 18 pairs, 32 a step


def test_precision_is_measured_by_what_computes() -> None:
    """The switch that the tests above use exists, and says what this processor has."""
    assert isinstance(torch.ops.mkldnn._is_mkldnn_bf16_supported(), bool)
