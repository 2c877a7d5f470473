"""AdMIRe's experts: heads, objective and benchmark, against hand and naive loops."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from idiomloss import PairwiseHingeLoss
from tests.planted_runs import write_lines
from tests.tiny_objectives import ADMIRE
from tests.tiny_runs import composed
from train.benchmarks.admire.experts import ExpertsBenchmark, macro_f1
from train.benchmarks.admire.keys import admire_keys, experts_keys
from train.config import TrainSettings, check
from train.data import astitch
from train.data.admire import first_words, fold_items, read_items
from train.data.astitch import SENSES_FILE, Meanings, Usage, UsageCorpus, read_senses, read_usages
from train.data.names import AStitchFile
from train.data.sources import SAMPLE_ROOT, DataFiles
from train.experts.heads import Experts, ExpertsOptions, load_experts
from train.expressions import plain_expression
from train.factory import build_benchmarks, build_objective, module_benchmarks
from train.factory.data import admire_split
from train.objectives.admire import AdmireObjective, meaning_loss
from train.reports.examples import examples_of
from train.reports.frames import items_of
from train.reports.runs import Run
from train.reports.statistics import statistic_of
from train.requests import Request

SPLIT = read_items(SAMPLE_ROOT / "admire", "train")
FILES = DataFiles(astitch.FILES, SAMPLE_ROOT / "astitch")
USAGES = read_usages(FILES, ["train_zero_shot"]).usages
MEANINGS = read_senses(FILES(SENSES_FILE))
WIDTH = 6


def experts(**options: object) -> Experts:
    torch.manual_seed(0)
    return Experts(ExpertsOptions(WIDTH, hidden=4, **options))  # type: ignore[arg-type]


def embeddings(model: Experts, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(SPLIT.items), len(model.item_requests(SPLIT.items[0])), WIDTH, generator=generator)


def objective(model: Experts, **options: object) -> AdmireObjective:
    arguments = ADMIRE | {"batch_size": 4, "seed": 0, "usages_per_item": 3} | options
    return AdmireObjective(model, SPLIT.items, USAGES, MEANINGS, PairwiseHingeLoss(), **arguments)


def test_requests_of_an_item() -> None:
    item = SPLIT.items[0]
    requests = experts(caption_words=3, separator=":").item_requests(item)
    assert requests[0].text == f"{item.compound} : {item.sentence}"
    assert requests[1] == Request(item.sentence, role="query")
    assert [r.text for r in requests[2:]] == [" ".join(c.caption.split()[:3]) for c in item.candidates]
    assert first_words("a  b c", 2) == "a b"


def test_an_experts_scores_by_hand() -> None:
    """Of each candidate: w · relu of each vector's projection, with vectors of length sqrt(width)."""
    model, e = experts(), embeddings(experts())
    scores = model(SPLIT.items, 7 * e)  # an embedding's length makes no difference
    expert = model.idiomatic
    weight = expert.score.weight[0]
    sense = model.sense_map(torch.nn.functional.normalize(e[2, 0], dim=0))
    for candidate in range(5):
        total = 0.0
        for number, vector in enumerate((sense, e[2, 1], e[2, 2 + candidate])):
            scaled = vector / vector.norm() * math.sqrt(WIDTH)
            hidden = expert.inputs[number](scaled).clamp(min=0)
            total += (weight[4 * number : 4 * number + 4] @ hidden).item()
        assert scores.by_expert[0, 2, candidate].item() == pytest.approx(total, abs=1e-5)
    chosen = scores.routed(torch.tensor([0, 1] * 4))
    assert torch.equal(chosen[3], scores.by_expert[1, 3])


def test_what_usage_features_are_of() -> None:
    model = experts(sense_features="usage", mask="something")
    text = "They kicked the paper tiger out."
    joined, span, hidden, alone = model.sense_requests("paper tiger", text, (16, 27))
    assert joined.text == f"paper tiger [SEP] {text}"
    assert span == Request(text, (16, 27), pooling="span")
    assert hidden == Request("They kicked the something out.")
    assert alone == Request("paper tiger")
    again = "Paper tigers? They kicked the paper-tiger out."
    assert model.sense_requests("paper tiger", again, (0, 12))[1:3] == [
        Request(again, (0, 12), pooling="span"),
        Request("something? They kicked the something out."),
    ]
    assert model.sense_requests("paper tiger", text, None)[1:3] == [Request(text)] * 2
    whole = model.sense_requests("paper tiger", "paper tiger", (0, 11))
    assert whole[1:3] == [Request("paper tiger", (0, 11), pooling="span"), Request("paper tiger")]
    assert len(model.item_requests(SPLIT.items[0])) == 4 + 1 + 5


def test_sense_by_usage_features_against_a_loop() -> None:
    """The sense vector is of the first request; the logits are of the other three, whatever their length."""
    model = experts(sense_features="usage")
    torch.nn.init.normal_(model.sense_head.weight)
    e = torch.randn(7, 4, WIDTH)
    vectors, logits = model.sense(e)
    torch.testing.assert_close(vectors, experts().sense(e[:, :1])[0])  # at first the identity
    weight, bias = model.sense_head.weight, model.sense_head.bias
    for row in range(7):
        for sense in (0, 1):
            total = bias[sense].item()
            for part in range(3):
                vector = e[row, 1 + part]
                for d in range(WIDTH):
                    scaled = vector[d].item() / vector.norm().item() * math.sqrt(WIDTH)
                    total += weight[sense, part * WIDTH + d].item() * scaled
            assert logits[row, sense].item() == pytest.approx(total, abs=1e-5)


def test_a_batch_and_its_loss_with_usage_features() -> None:
    """Items, usages and meanings are told apart, with four requests for a sense."""
    model = experts(sense_features="usage")
    torch.nn.init.normal_(model.sense_head.weight)
    built = objective(model, weights=(0.0, 1.0, 0.0))
    assert built.special_tokens == {"separator": "[SEP]", "mask": "[MASK]"}
    batch = built.batch(0, [0, 5])
    captions = {c.caption for i in (0, 5) for c in SPLIT.items[i].candidates}
    assert {batch.requests[row].text for row in batch.plain_rows} == captions
    assert all(batch.requests[row] in built.plain_requests for row in batch.plain_rows)
    e = torch.randn(len(batch.requests), WIDTH)
    rows = [*range(4), *range(10, 14), *range(20, 20 + 6 * 4)]  # two items of ten requests, six usages
    logits = model.sense(e[rows].view(8, 4, WIDTH))[1]
    by_sentence = {u.sentence: int(not u.is_idiomatic) for u in USAGES}
    senses = [int(SPLIT.items[i].sense == "literal") for i in (0, 5)]
    senses += [by_sentence[batch.requests[row].text] for row in range(21, 20 + 6 * 4, 4)]
    naive = [-math.log(row.softmax(0)[sense].item()) for row, sense in zip(logits, senses, strict=True)]
    assert built.loss(e, batch).loss.item() == pytest.approx(sum(naive) / 8, rel=1e-5)
    benchmark = ExpertsBenchmark(model, [SPLIT], [("astitch_dev", UsageCorpus(USAGES[:3], (), 0, 0))])
    assert len(benchmark.requests) == 10 * 8 + 4 * 3
    assert benchmark.score(torch.randn(92, WIDTH)).scores["admire/astitch_dev/majority/sense_accuracy"] > 0


@pytest.mark.parametrize(
    ("taught", "scored"),
    [
        (["train_zero_shot"], ["astitch_dev", "astitch_test"]),
        (["train_zero_shot", "dev"], ["astitch_test"]),
        (["train_zero_shot", "train_one_shot"], []),
    ],
)
def test_no_compound_is_scored_that_a_file_of_astitch_taught(taught: list[str], scored: list[str]) -> None:
    """The sample's files share compounds as the published ones do. What AdMIRe's items taught is scored."""
    chosen = f"objective.astitch=[{','.join(taught)}]"
    settings = check(TrainSettings, composed("config", "+experiment=admire_experts", "data=sample", chosen))
    objective = build_objective(settings)
    benchmarks, _ = build_benchmarks(settings)
    (benchmark,) = module_benchmarks(settings, objective.modules, benchmarks)
    assert isinstance(benchmark, ExpertsBenchmark)
    assert [split for split, _ in benchmark.usages] == scored
    keys = settings.objective.score_keys(lambda name: settings.splits(name))
    assert {key.split("/")[1] for key in keys if "astitch" in key} == set(scored)
    of_astitch = objective.idiom_sentences[len(SPLIT.items) :]
    seen = {plain_expression(phrase) for phrase, _ in of_astitch}
    for _, corpus in benchmark.usages:
        assert not seen & {plain_expression(usage.phrase) for usage in corpus.usages}


@pytest.mark.parametrize(
    ("file", "shared", "num_sentences"),
    [("dev", ["bad apple", "banana republic", "private eye"], 44), ("test", ["busy bee", "loan shark"], 41)],
)
def test_compounds_that_admires_items_taught_are_scored(
    real_data: Path, file: AStitchFile, shared: list[str], num_sentences: int
) -> None:
    """As docs/objectives.md and docs/results/admire.md say."""
    items = read_items(real_data / "admire", "train").items
    taught = {plain_expression(item.compound) for item in items}
    scored = read_usages(DataFiles(astitch.FILES, real_data / "astitch"), [file]).usages
    both = [name for usage in scored if (name := plain_expression(usage.phrase)) in taught]
    assert (sorted(set(both)), len(both)) == (shared, num_sentences)


def test_saved_experts_with_usage_features_and_those_of_earlier_versions(tmp_path: Path) -> None:
    model = experts(sense_features="usage", astitch=("train_zero_shot", "dev"))
    torch.nn.init.normal_(model.sense_head.weight)
    model.publish(tmp_path)
    loaded = load_experts(tmp_path, lambda *_: pytest.fail("there is no CLIP"))
    assert loaded.options == model.options
    e = torch.randn(2, 4, WIDTH)
    assert torch.equal(loaded.sense(e)[1], model.sense(e)[1])
    older = experts()
    older.publish(tmp_path)
    file = tmp_path / "experts" / "experts.json"
    content = json.loads(file.read_text())
    for name in ("sense_features", "mask", "astitch"):
        del content[name]
    file.write_text(json.dumps(content))
    loaded = load_experts(tmp_path, lambda *_: pytest.fail("there is no CLIP"))
    assert torch.equal(loaded.sense(e[:, :1])[1], older.sense(e[:, :1])[1])
    # What taught them is unknown, and the scores say so.
    assert loaded.options.astitch is None
    for known, number in ((older, 0), (loaded, 1)):
        benchmark = ExpertsBenchmark(known, [], [("astitch_dev", UsageCorpus(USAGES[:3], (), 0, 0))])
        notes = benchmark.score(torch.randn(len(benchmark.requests), WIDTH)).notes
        assert ["astitch_dev" in note for note in notes] == [True] * number


@pytest.mark.parametrize(("head", "depends"), [("linear", False), ("hidden", True)])
def test_only_with_a_hidden_layer_can_the_sentence_change_the_order(head: str, depends: bool) -> None:
    """As published, the sentence adds the same to all candidates: differences of scores do not see it."""
    model, e = experts(head=head), embeddings(experts())
    other = e.clone()
    other[:, :2] = torch.randn(len(e), 2, WIDTH)
    first, second = (model(SPLIT.items, x).by_expert for x in (e, other))
    gaps = (first - first[..., :1]) - (second - second[..., :1])
    assert (gaps.abs().max().item() > 1e-4) == depends


def test_experts_start_as_the_plain_cosine() -> None:
    model, e = experts(cosine=10.0), embeddings(experts())
    scores = model(SPLIT.items, e)
    cosine = torch.cosine_similarity(e[:, 1, None], e[:, 2:], dim=2)
    torch.testing.assert_close(scores.by_expert, torch.stack([10 * cosine, 10 * cosine]))
    literal = experts(literal="cosine", sense_encoder=False)(SPLIT.items, e).by_expert[1]
    torch.testing.assert_close(literal, cosine)


def test_the_meaning_loss_against_a_loop() -> None:
    torch.manual_seed(0)
    vectors, meanings = torch.randn(4, WIDTH, requires_grad=True), torch.randn(5, WIDTH)
    correct = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0]]).bool()
    wrong = torch.tensor([[0, 0, 1, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]).bool()
    loss, number = meaning_loss(vectors, meanings, correct, wrong, 0.5)
    terms = []
    for row in (0, 1):  # the others lack a correct or a wrong meaning
        e = [math.exp(torch.cosine_similarity(vectors[row], m, dim=0).item() / 0.5) for m in meanings]
        right = sum(x for x, is_right in zip(e, correct[row], strict=True) if is_right)
        rest = sum(x for x, is_wrong in zip(e, wrong[row], strict=True) if is_wrong)
        terms.append(-math.log(right / (right + rest)))
    assert number == 2
    assert loss.item() == pytest.approx(sum(terms) / 2, abs=1e-5)
    nothing, number = meaning_loss(vectors, meanings[:0], correct[:, :0], wrong[:, :0], 0.5)
    assert (nothing.item(), number) == (0.0, 0)
    nothing.backward()  # type: ignore[no-untyped-call]


def test_the_loss_is_the_weighted_sum_of_its_terms() -> None:
    """Ranking by the gold sense's expert, cross-entropy over items and usages."""
    model = experts(head="hidden")
    terms = []
    for weights in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 2.0, 3.0)):
        built = objective(model, weights=weights)
        batch = built.batch(0, [1, 4, 6])
        generator = torch.Generator().manual_seed(3)
        e = torch.randn(len(batch.requests), WIDTH, generator=generator)
        terms.append(built.loss(e, batch).loss.item())
    assert terms[3] == pytest.approx(terms[0] + 2 * terms[1] + 3 * terms[2], rel=1e-5)
    items = [SPLIT.items[i] for i in (1, 4, 6)]
    scores = model(items, e[: 3 * 7].view(3, 7, WIDTH))
    gold = scores.routed(torch.tensor([int(item.sense == "literal") for item in items]))
    ranks = torch.tensor([item.gold_ranks for item in items])
    assert terms[0] == pytest.approx(PairwiseHingeLoss()(gold, ranks).item(), rel=1e-5)
    usages = e[21 : 21 + 9, None]
    logits = torch.cat([scores.sense, model.sense(usages)[1]])
    texts = [r.text for r in batch.requests[21 : 21 + 9]]
    usage_by_text = {f"{u.phrase} [SEP] {u.sentence}": u for u in USAGES}
    senses = [int(item.sense == "literal") for item in items]
    senses += [int(not usage_by_text[text].is_idiomatic) for text in texts]
    naive = [-math.log(row.softmax(0)[sense].item()) for row, sense in zip(logits, senses, strict=True)]
    assert terms[1] == pytest.approx(sum(naive) / len(naive), rel=1e-5)


def test_meanings_and_rows_without_idiom_of_a_batch() -> None:
    built = objective(experts())
    batch = built.batch(0, [0, 5])  # "lion's share" has no meanings in the sample's table
    captions = {c.caption for i in (0, 5) for c in SPLIT.items[i].candidates}
    assert {batch.requests[row].text for row in batch.plain_rows} == captions
    assert set(batch.plain_rows) == {*range(2, 7), *range(9, 14)}
    assert all(batch.requests[row] in built.plain_requests for row in batch.plain_rows)
    targets = batch.targets
    assert targets.correct[0].any()
    assert targets.wrong[0].any()
    assert not targets.correct[1].any()
    texts = [request.text for request in batch.requests[-targets.correct.shape[1] :]]
    assert [t for t, is_it in zip(texts, targets.correct[0], strict=True) if is_it] == ["powerless threat"]
    assert built.num_without_meanings == 2


def test_usages_take_turns() -> None:
    """Every sentence comes once before any comes again, whatever an epoch's order of items is."""
    built = objective(experts())
    seen = []
    for epoch in range(3):
        for step in built.epoch_steps(epoch, 2):
            for shard in step:
                batch = built.batch(epoch, shard)
                start = 7 * len(shard)
                texts = [r.text for r in batch.requests[start : start + 3 * len(shard)]]
                seen += texts
    counts = [seen.count(f"{u.phrase} [SEP] {u.sentence}") for u in USAGES]
    assert sum(counts) == 3 * 8 * 3
    assert max(counts) - min(counts) <= 1


def test_items_without_gold_cannot_be_learnt_from() -> None:
    from train.errors import UserError

    items = [replace(SPLIT.items[0], gold_ranks=None)]
    with pytest.raises(UserError, match="without sense or gold order: train_"):
        AdmireObjective(experts(), items, USAGES, {}, PairwiseHingeLoss(), **ADMIRE)


def test_a_folds_compounds_are_nowhere_in_training() -> None:
    scored: set[str] = set()
    for fold in range(4):
        training, held_out = fold_items(SPLIT, fold, 4)
        assert held_out.name == "train_cv"
        assert len(training.items) + len(held_out.items) == len(SPLIT.items)
        compounds = {plain_expression(i.compound) for i in held_out.items}
        assert not compounds & ({plain_expression(i.compound) for i in training.items} | scored)
        scored |= compounds
        options = ["+experiment=admire_experts", "+protocol=cross_validation_admire", "data=sample"]
        options += [f"data.fold={fold}", "data.folds=4"]
        settings = check(TrainSettings, composed("config", *options))
        assert admire_split(settings, "train_cv").items == held_out.items
        built = build_objective(settings)
        assert not {plain_expression(e) for e, _ in built.idiom_sentences} & compounds
        assert f"held out: {len(compounds)} compounds of fold {fold} of 4" in built.describe()
    assert len(scored) == 8


def test_the_benchmark_routes_by_the_predicted_sense(tmp_path: Path) -> None:
    """A head that calls everything literal: the whole system is the literal expert."""
    model = experts(head="hidden")
    with torch.no_grad():
        model.sense_head.weight.zero_()
        model.sense_head.bias.copy_(torch.tensor([0.0, 1.0]))
    usages = (Usage("a", "x", "x y", None, True), Usage("b", "x", "y x", None, False))
    more = (*usages, Usage("c", "x", "z", None, True))
    benchmark = ExpertsBenchmark(model, [SPLIT], [("astitch_dev", UsageCorpus(more, (), 3, 0))])
    assert len(benchmark.requests) == 7 * 8 + 3
    e = embeddings(model)
    result = benchmark.score(torch.cat([e.flatten(0, 1), torch.randn(3, WIDTH)]))
    literal = model(SPLIT.items, e).by_expert[1]
    items = [r for r in result.per_query if (r["split"], r["mode"]) == ("train", "experts_text")]
    for record, row in zip(items, literal, strict=True):
        item = next(i for i in SPLIT.items if i.id == record["id"])
        best = item.candidates[int(row.argmax())].name
        assert record["order"][0] == best
        assert record["predicted_sense"] == "literal"
    scores = result.scores
    share = sum(item.sense == "literal" for item in SPLIT.items) / 8
    assert scores["admire/train/experts_text/sense_accuracy"] == share
    assert scores["admire/train/majority/sense_accuracy"] == max(share, 1 - share)
    assert scores["admire/astitch_dev/experts_text/sense_accuracy"] == pytest.approx(1 / 3)
    assert scores["admire/astitch_dev/experts_text/sense_accuracy/idiomatic"] == 0
    assert scores["admire/astitch_dev/experts_text/sense_accuracy/literal"] == 1
    assert scores["admire/astitch_dev/majority/sense_accuracy"] == pytest.approx(2 / 3)
    assert set(scores) == set(experts_keys(["train", "astitch_dev"], "experts_text"))
    assert results_of(result.per_query) == pytest.approx(scores)
    # A report's page finds no record damaged, whether of an item or of a sense alone.
    write_lines(tmp_path / "per_query" / "admire.jsonl", result.per_query)
    (shown,), notes = examples_of(Run(tmp_path, "run", "finished"))
    assert shown.lists["Worst"]
    assert not notes
    same = "admire/train/experts_text{}/ndcg@5/literal"
    assert scores[same.format("")] == scores[same.format("_gold_sense")]
    assert model.training


def results_of(records: list[dict[str, Any]]) -> dict[str, float]:
    """The scores that a report finds in a per-query file."""
    items, _ = items_of(records, "admire")
    return {
        key: statistic_of(of_key.statistic.iloc[0], of_key.value, of_key.gold)
        for key, of_key in items.groupby("key", sort=False)
    }


def test_without_gold_there_are_predictions_only() -> None:
    dev = read_items(SAMPLE_ROOT / "admire", "dev")
    model = experts()
    benchmark = ExpertsBenchmark(model, [dev])
    result = benchmark.score(torch.randn(len(benchmark.requests), WIDTH))
    assert not [key for key in result.scores if key in admire_keys(["dev"], ["experts_text"])]
    assert "admire_dev_experts_text.tsv" in result.predictions


def test_macro_f1_by_hand() -> None:
    predicted, gold = torch.tensor([0, 0, 1, 1, 0]), torch.tensor([0, 1, 1, 1, 1])
    assert macro_f1(predicted, gold) == pytest.approx((2 * 1 / 4 + 2 * 2 / 6) / 2)


def test_meanings_of_one_sense_alone_do_not_count() -> None:
    meanings = {plain_expression(SPLIT.items[0].compound): Meanings("paper tiger", "a toy", ())}
    built = AdmireObjective(experts(), SPLIT.items[:1], USAGES, meanings, PairwiseHingeLoss(), **ADMIRE)
    assert built.num_without_meanings == 1
