"""mteb's numbers are ours: IdioLink's nDCG@10, Spearman's correlation on STS pairs."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from idiomtune.benchmarks.semeval2022 import SemEvalBenchmark
from idiomtune.data.idiolink import Split, load_split
from idiomtune.data.semeval2022 import PairSplit, read_pairs
from idiomtune.data.sources import DataFiles
from idiomtune.errors import UserError
from idiomtune.integrations.sentence_transformers import SuiteEvaluator
from tests.benchmarks import idiolink, section

pytestmark = pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension`:FutureWarning")


def theirs(model: SentenceTransformer, split: Split, pairs: PairSplit, folder: Path) -> dict[str, float]:
    """Main scores by task and subset, read from the files that mteb writes."""
    import mteb  # takes seconds, which the processes without these tests are spared

    from idiomtune.integrations.mteb import IdioLinkRetrieval, SemEval2022STS

    tasks = [IdioLinkRetrieval(split), SemEval2022STS(pairs)]
    mteb.evaluate(model, tasks, cache=mteb.ResultCache(folder), co2_tracker=False, show_progress_bar=False)
    scores: dict[str, float] = {}
    for path in folder.rglob("*.json"):
        if path.stem != "model_meta":
            card = json.loads(path.read_text(encoding="utf-8"))
            assert len(card["dataset_revision"]) == 16
            (split_scores,) = card["scores"].values()
            scores |= {f"{card['task_name']}/{s['hf_subset']}": s["main_score"] for s in split_scores}
    return scores


def test_scores_are_those_of_mteb(
    tiny_path: Path, sample_root: Path, semeval_sample: DataFiles, tmp_path: Path
) -> None:
    split, pairs = load_split(sample_root, "val"), read_pairs(semeval_sample, "dev")
    model = SentenceTransformer(str(tiny_path), device="cpu")
    key = f"idiolink/{split.name}/sentence/ndcg@10"
    semeval = SemEvalBenchmark([pairs], section("semeval2022"))
    evaluator = SuiteEvaluator([idiolink([split], "sentence"), semeval], key)
    ours = evaluator(model)
    mtebs = theirs(model, split, pairs, tmp_path)
    assert mtebs["IdioLink/default"] == pytest.approx(ours[key], abs=6e-6)  # rounded to five digits
    languages = {name.rpartition("/")[2] for name in mtebs if "sts" in name}
    assert languages >= {"en", "pt", "all"}
    for language in languages:
        # To float32: nearly equal cosines change places.
        expected = ours[f"semeval2022/{pairs.name}/{language}/sts/spearman"]
        assert mtebs[f"SemEval2022Task2B-sts/{language}"] == pytest.approx(expected, abs=2e-5)


def test_a_split_without_gold_is_refused(semeval_sample: DataFiles) -> None:
    from idiomtune.integrations.mteb import SemEval2022STS

    with pytest.raises(UserError, match="eval"):
        SemEval2022STS(read_pairs(semeval_sample, "eval"))


def test_without_mteb_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mteb.abstasks.sts", None)
    monkeypatch.delitem(sys.modules, "idiomtune.integrations.mteb", raising=False)
    with pytest.raises(ImportError, match=r"idiomtune\[mteb\]"):
        importlib.import_module("idiomtune.integrations.mteb")
