"""The words of a command line: what Hydra reads of them, and what is refused, by the option's name."""

from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from idiomtune.cli import PROGRAMS, read_settings
from idiomtune.config.compose import compose_config
from idiomtune.config.words import default_choices, overrides_of, split_flags
from idiomtune.errors import UserError
from tests.programs import main_of, refused

TOKEN = "hf_" + "aB3" * 12


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder, in which `mine` is a finished run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_API_KEY", "the-secret-value")
    (tmp_path / "mine" / "best").mkdir(parents=True)
    (tmp_path / "mine" / "run.json").write_text('{"status": "finished"}', encoding="utf-8")
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "run.json").write_text('{"status": "running"}', encoding="utf-8")


PART = "objective.parts.p.data"
# Program, words separated by ` | `, option → value.
READ: list[tuple[str, str, dict[str, Any]]] = [
    ("train", "model=unknown", {"model": "unknown"}),  # left to Hydra, which lists what there is
    ("train", "model=mine", {"model": "pretrained", "model.path": "mine/best"}),
    ("train", "model='a/b-v2' | seed=1", {"model": "pretrained", "model.path": "a/b-v2", "seed": 1}),
    ("train", "model=/x/it's here", {"model": "pretrained", "model.path": "/x/it's here"}),
    ("train", "model.glossary=it's, mine.tsv", {"model.glossary": "it's, mine.tsv"}),
    ("train", "data.idiolink=null", {"data.idiolink": None}),
    ("train", "benchmark.own_sts.path={a:b.csv}", {"benchmark.own_sts.path": {"a": "b.csv"}}),
    ("train", "trainer.monitor=a/b@1/dim=8", {"trainer.monitor": "a/b@1/dim=8"}),  # Hydra takes no second =
    ("train", "trainer.monitor=[a/b,'a/dim=8',a/dim=9]", {"trainer.monitor": ["a/b", "a/dim=8", "a/dim=9"]}),
    ("train", f"++{PART}.negatives.corpus=a=b.csv", {f"{PART}.negatives.corpus": "a=b.csv"}),
    ("train", "own | seed=1", {"experiment": "own", "seed": 1}),
    ("train", "benchmarks=[own_sts]", {"benchmark": ["own_sts"]}),
    ("evaluate", "minilm", {"model": "minilm"}),
    ("evaluate", "benchmarks=[idiolink]", {"benchmarks": ["idiolink"]}),  # of those that are there
    ("evaluate", "benchmarks=own_sts", {"benchmark": "own_sts", "benchmarks": "own_sts"}),
    (
        "evaluate",
        "benchmark=[admire] | benchmarks=own_sts",
        {"benchmark": ["admire"], "benchmarks": "own_sts"},
    ),
]


@pytest.mark.parametrize(("program", "words", "expected"), READ)
def test_what_hydra_reads(program: str, words: str, expected: dict[str, Any]) -> None:
    rewritten = overrides_of(words.split(" | "), PROGRAMS[program].config, PROGRAMS[program].subject)
    overrides = OverridesParser.create().parse_overrides(rewritten)
    assert {override.key_or_group: override.value() for override in overrides} == expected


def test_words_of_a_sweep() -> None:
    for words, expected in (
        ("model=a/b,c/d", "model=pretrained model.path='a/b','c/d'"),
        ("model=minilm,pretrained", "model=minilm,pretrained"),
        ("idiolink_ft,own seed=1,2", "+experiment=idiolink_ft,own seed=1,2"),
    ):
        assert overrides_of(words.split(), "train", "+experiment", several=True) == expected.split()


def test_flags_and_their_values() -> None:
    words = ["own", "--config-dir", "mine", "seed=1", "--cfg=job", "-m"]
    assert split_flags(words) == ({"--config-dir": "mine", "--cfg": "job", "-m": ""}, ["own", "seed=1"])
    for wrong in ("own --config-dir", "own --cfg seed=1 -m"):
        with pytest.raises(UserError, match=r"--(config-dir|cfg)"):
            split_flags(wrong.split())


OWN = "+experiment=own | data.train=a.csv"
TRIPLET, RELEASED = "+experiment=adaptive_triplet", "objective.candidates=released"
FACTS = "admire/train/caption/rank_difference"
# Words separated by ` | `, parts of the message separated by `|`.
TRAIN = [
    ("model=unfinished", "unfinished|best/"),
    ("model=~nobody-here", "model=~nobody-here"),
    ("+sweep=x", "idiomtune train -m +sweep=x"),
    ("run_dir=\udcff", "run_dir|Unicode"),
    # Options with dashes, with the form that they have here
    ("-trainer.max-epochs=2", "-trainer.max-epochs|: trainer.max_epochs=2"),
    # Secrets
    ("--hf-token=the-secret", "hf_token"),  # known by its name alone
    *((f"{name}={TOKEN}", "HF_TOKEN") for name in ("+token", "hub.token", "HF_TOKEN")),
    ("tracking.wandb.project=the-secret-value", "tracking.wandb.project"),
    # Misspelt
    ("trainer.batchsize=3", "trainer.batch_size?"),
    ("lr=3", "trainer.learning_rate?"),
    ("objective.querymode=span", "objective.query_mode?|objective has name, split,"),
    ("benchmark=[idiolnk]", "benchmark=idiolink?"),
    ("model=minilmm", "model=minilm?|model has bert_base|<owner>/<name>"),
    ("minilm | seed", "seed|name=value"),
    ("seed=1,2", "seed=1,2|key=[value1,value2]"),
    ("trainer.monitor=idiolink/val/sentence/ndcg10", "trainer.monitor|idiolink/val/sentence/ndcg@10"),
    # Of the wrong type or size
    ("eval.every=sometimes", "  eval.every: |'epoch' or 'end', |; or "),
    ("trainer.batch_size=0 | device=gpu", "2 settings|trainer.batch_size: |got 0|device: |'mps', got 'gpu'"),
    ("model.instruction_prompt='{instruction}'", "model.instruction_prompt: |{query}"),
    ("objective.loss.temperature=0", "objective.loss.temperature: |0.0001"),
    # What must fit together
    ("trainer.accumulation=5", "batch_size=32|accumulation=5"),
    ("split=test", "trainer.monitor: |'idiolink/val/sentence/ndcg@10'"),
    (f"trainer.monitor={FACTS}", f"trainer.monitor={FACTS}"),
    ("data.fold=0", "data.fold=<number>, split=cv"),
    ("data=sample | data.idiolink=folder", "data=sample|data.idiolink"),
    ("objective.candidates=in_batch", "candidates=in_batch|loss.in_batch=all"),
    ("objective.query_weights=[1,2]", "query_weights|query_mode"),
    (f"{RELEASED} | objective.redraw=true", "redraw=true|candidates=sampled"),
    ("objective.single_positive_every=1", "single_positive_every|candidates=in_batch"),
    (f"{TRIPLET} | objective.whole_groups=false", "order=file"),
    ("objective.idioms_per_batch=5", "objective.idioms_per_batch=5|trainer.batch_size=32"),
    ("objective.positive_weights={idiomatic:0.0,simplification:0.0,sense:0.0}", "positive_weights"),
    (f"+protocol=cross_validation | data.fold=0 | {RELEASED}", RELEASED),
    ("+experiment=idiolink_ft | objective.drop_last=true", "drop_last=true|idioms_per_batch"),
    ("benchmark.idiolink={query_modes:[],bm25_modes:[]}", "query_modes|bm25_modes"),
    (f"{TRIPLET} | objective.order=file | objective.groups_per_expression=2", "order=shuffled"),
    ("+experiment=joint | trainer.batch_size=60", "objective.parts.idiolink.options.idioms_per_batch=8"),
    (f"{OWN} | overwrite=true | run_dir=a | model.path=a/best", "model.path=a/best"),
    ("benchmark=[own_sts]", "benchmark.own_sts"),
    ("benchmark=[epsilon] | trainer.monitor=epsilon/pt/C/p_value", "epsilon/pt/C/p_value"),
    (
        "forgetting.lora.rank=4 | forgetting.weight_interpolation=0.7",
        "lora.rank=4 and weight_interpolation=0.7",
    ),
    ("forgetting.lora.rank=4 | model.idiom_tokens=train", "tokens"),
    (f"{TRIPLET} | model.idiom_tokens=[]", "model.idiom_tokens: must be train"),
    (f"{TRIPLET} | trainer.only_idiom_tokens=true | forgetting.distillation=1", "has no effect"),
    (f"{TRIPLET} | trainer.only_idiom_tokens=true | trainer.freeze_encoder=true", "give one of them"),
]
OTHERS = [
    ("evaluate", "model.idiom_tokens=train", "idiom_tokens=train: there is no training data"),
    ("evaluate", "benchmark=[idiolink] | benchmarks=[semeval2022]", "semeval2022|benchmark=[idiolink]"),
    ("learn", "minilm", "glossary=<file>|remove="),
    ("learn", "minilm | glossary=a.tsv | steps=20", "steps|into=tokens"),
    ("learn", "minilm | glossary=a.tsv | into=tokens | epochs=2", "epochs|into=weights"),
    ("learn", "minilm | glossary=a.tsv | remove=[miss the boat]", "remove|into=tokens"),
    ("learn", "minilm | glossary=a.tsv | into=tokens | precision=bf16", "precision=bf16|fp32"),
    ("learn", "minilm | glossary=a.tsv | model.glossary=b.tsv", "model.glossary"),
    ("learn", "minilm | glossary=a.tsv | into=tokens | model.glossary_gate=true", "model.glossary_gate"),
]
REFUSED = [*(("train", words, named) for words, named in TRAIN), *OTHERS]


@pytest.mark.parametrize(("program", "words", "named"), REFUSED)
def test_what_is_wrong_is_named(program: str, words: str, named: str) -> None:
    """Without a token or password, neither on the screen nor in a log."""
    error = refused(lambda: read_settings(program, words.split(" | ")), *named.split("|"))
    assert not any(secret in str(error) for secret in (TOKEN, "the-secret"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("-m | run_dir=run | seed=1,2", "run_dir|hydra.sweep.dir"),
        ("-m | resume=run | seed=1,2", "resume|hydra.sweep.dir"),
    ],
)
def test_what_several_runs_cannot_share_is_named(
    words: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_of("train")(words.split(" | ")) == 2
    error = capsys.readouterr().err
    assert all(part in error for part in named.split("|"))


def test_what_looks_like_a_secret_passes() -> None:
    words = ["model.tokenizer=x", "model.idiom_tokens=train", "run_dir=/a/token", "+x=${oc.env:HOME}"]
    overrides_of([*words, "model.path=https://example.org/model", "model.revision=" + "0a" * 20], "train", "")


def test_what_is_chosen_by_default_is_known() -> None:
    for program in ("train", "evaluate"):
        assert default_choices(program, "benchmark") == list(compose_config(program)["benchmark"])
    assert default_choices("push", "benchmark") == []
