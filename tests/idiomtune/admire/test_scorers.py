"""AdMIRe's scorers and their objectives, against hand and naive loops."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from idiomloss import PairwiseHingeLoss
from idiomtune.admire.objective import contrast_loss, meaning_loss
from idiomtune.admire.scorer import ExpertsBenchmark, RankingNetwork, load, route
from idiomtune.benchmarks.admire import experts_scores
from idiomtune.config import TrainSettings, validate
from idiomtune.data import astitch
from idiomtune.data.admire import fold_items, read_items
from idiomtune.data.astitch import CompoundMeanings, UsageCorpus, read_usages
from idiomtune.data.sources import SAMPLE_ROOT, DataFiles
from idiomtune.encoder.device import choose_device
from idiomtune.expressions import plain_expression
from idiomtune.reports.benchmark_report import benchmark_report
from idiomtune.reports.runs import RunResults
from idiomtune.requests import EmbeddingRequest, LabelledUse
from idiomtune.training.objective import module_benchmarks
from tests.benchmarks import benchmarks_of, in_turn
from tests.idiomtune.admire.conftest import Build
from tests.planted_runs import write_lines
from tests.programs import refused
from tests.tiny_runs import composed

SPLIT = read_items(SAMPLE_ROOT / "admire", "train", check_images=True)
ITEMS = SPLIT.items
USAGES = read_usages(DataFiles(astitch.FILES, SAMPLE_ROOT / "astitch"), ["train_zero_shot"]).usages
CPU = choose_device("cpu", "fp32")
WIDTH = 32
USAGE = "objective.sense_features=usage"


def objective_options(*more: str) -> Any:
    return validate(TrainSettings, composed("train", "+experiment=admire_experts", *more)).objective


def usage_in(sentence: str, span: tuple[int, int] | None) -> LabelledUse:
    return LabelledUse("", "paper tiger", sentence, span, is_idiomatic=True)


def embeddings(scorer: Any, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(ITEMS), len(scorer.item_requests(ITEMS[0])), WIDTH, generator=generator)


def test_what_the_encoder_embeds(build: Build) -> None:
    """For an item; and for a sense by `usage`: the span, the sentence without any occurrence, the phrase."""
    requests = build("objective.captions.words=3", "objective.separator=':'").head.item_requests(ITEMS[0])
    assert requests[0].text == f"{ITEMS[0].compound} : {ITEMS[0].sentence}"
    assert requests[1] == EmbeddingRequest(ITEMS[0].sentence, role="query")
    assert [r.text for r in requests[2:]] == [" ".join(c.caption.split()[:3]) for c in ITEMS[0].candidates]

    scorer = build(USAGE, "objective.mask=something").head
    text = "Paper tigers? They kicked the paper-tiger out."
    joined, *requests = scorer.sense_requests(usage_in(text, (0, 12)))
    assert joined.text == f"paper tiger [SEP] {text}"
    hidden = EmbeddingRequest("something? They kicked the something out.")
    assert requests == [
        EmbeddingRequest(text, (0, 12), pooling="span"),
        hidden,
        EmbeddingRequest("paper tiger"),
    ]
    assert scorer.sense_requests(usage_in(text, None))[1:3] == [EmbeddingRequest(text)] * 2
    whole = scorer.sense_requests(usage_in("paper tiger", (0, 11)))
    assert whole[1:3] == [
        EmbeddingRequest("paper tiger", (0, 11), pooling="span"),
        EmbeddingRequest("paper tiger"),
    ]


@pytest.mark.parametrize(("printed", "head"), [(False, "hidden"), (True, "linear")])
def test_a_networks_score_by_hand(printed: bool, head: str) -> None:
    """w · relu of each vector's projection, with vectors of length sqrt(width), or as they are."""
    torch.manual_seed(0)
    start = {(0, 0): 0.5, (1, 1): 2.0} if head == "hidden" else {}
    changed = {"head": head, "hidden": 5, "cosine": 3.0 if start else None}
    options = objective_options().model_copy(update=changed)
    network = RankingNetwork([6] * 4, options, start, as_printed=printed)
    if start:  # without the cosine it starts at zero
        assert not network.score.weight.any()
        torch.nn.init.normal_(network.score.weight)
    items, candidates = list(torch.randn(2, 3, 6)), list(torch.randn(2, 3, 5, 6))
    vectors = [items[0][1], items[1][1], candidates[0][1, 4], candidates[1][1, 4]]
    hidden = []
    for layer, vector in zip(network.inputs, vectors, strict=True):
        hidden += layer(vector if printed else vector / vector.norm() * math.sqrt(6)).clamp(min=0).tolist()
    values = network.middle(torch.tensor(hidden))
    by_hand = sum(w * v for w, v in zip(network.score.weight[0].tolist(), values.tolist(), strict=True))
    by_hand += network.score.bias.item() if printed else 0.0
    for (a, c), weight in start.items():
        by_hand += 3.0 * weight * functional.cosine_similarity(vectors[a], vectors[2 + c], dim=0).item()
    assert network(items, candidates)[1, 4].item() == pytest.approx(by_hand, abs=1e-5)
    longer = network([7 * v for v in items], [7 * v for v in candidates])
    assert torch.allclose(longer, network(items, candidates), atol=1e-5) == (not printed)


def test_experts_start_as_the_plain_cosine(build: Build) -> None:
    scorer = build().head
    e = embeddings(scorer)
    cosine = torch.cosine_similarity(e[:, 1, None], e[:, 2:], dim=2)
    _, _, by_expert = scorer(ITEMS, e)
    torch.testing.assert_close(by_expert, torch.stack([10 * cosine, 10 * cosine]))
    assert torch.equal(route(by_expert, torch.tensor([0, 1] * 4))[3], by_expert[1, 3])


def test_sense_by_usage_features_against_a_loop(build: Build) -> None:
    """The sense vector is of the first request; the logits are of the other three, whatever their length."""
    scorer = build(USAGE).head
    torch.nn.init.normal_(scorer.sense_head.weight)
    e = torch.randn(7, 4, WIDTH)
    vectors, logits = scorer.sense(e)
    torch.testing.assert_close(vectors, functional.normalize(e[:, 0], dim=1))  # at first the identity
    for row in range(7):
        parts = [part / part.norm() * math.sqrt(WIDTH) for part in e[row, 1:]]
        expected = scorer.sense_head.weight @ torch.cat(parts) + scorer.sense_head.bias
        torch.testing.assert_close(logits[row], expected, atol=1e-4, rtol=0)


def test_printed_one_logit_decides_the_expert(build: Build) -> None:
    scorer = build(system="aima").head
    with torch.no_grad():
        scorer.sense_head.weight.zero_()
        for bias, expert in ((0.5, 0), (-0.5, 1)):
            scorer.sense_head.bias.fill_(bias)
            _, logits, by_expert = scorer.eval()(ITEMS[:3], torch.randn(3, 1, WIDTH))
            assert logits.argmax(1).tolist() == [expert] * 3
            alone = scorer.rank(expert, ITEMS[:3], scorer.see(scorer.towers[expert], ITEMS[:3]))
            torch.testing.assert_close(by_expert[expert], alone)


@pytest.mark.parametrize("captions", [True, False])
def test_experts_of_clip_see_its_texts_and_images(build: Build, clip_path: Path, captions: bool) -> None:
    """The encoder tells the sense alone; without captions the literal expert is plain cosine."""
    seen = [] if captions else ["objective.ablation=clip_cosine"]
    scorer, item = build(f"objective.clip.path={clip_path}", *seen).head, ITEMS[1]
    assert len(scorer.item_requests(item)) == 1
    row = scorer(ITEMS, torch.randn(len(ITEMS), 1, WIDTH))[2][1, 1]
    (towers,) = scorer.towers
    sentence = towers.texts([item.sentence])
    expected = torch.cosine_similarity(sentence, towers.images([c.path for c in item.candidates]))
    if captions:  # as cosine=10 starts
        texts = towers.texts([c.caption for c in item.candidates])
        expected = 5 * (expected + torch.cosine_similarity(sentence, texts))
    torch.testing.assert_close(row, expected, atol=1e-5, rtol=0)


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


def test_the_contrast_by_hand() -> None:
    """Of cosines 0.6 with the right meaning, and 0.8 and -0.8 with the wrong one."""
    vectors, right = torch.tensor([[3.0, 4.0]] * 2), torch.tensor([[1.0, 0.0]] * 2)
    loss = contrast_loss(vectors, right, torch.tensor([[0.0, 2.0], [0.0, -2.0]]))
    assert loss.item() == pytest.approx((0.4 + 0.8 + 0.4) / 2)


def test_the_loss_is_the_weighted_sum_of_its_terms(build: Build) -> None:
    """Ranking by the gold sense's expert, cross-entropy over items and usages, which are told apart."""
    options, num_sense, terms = ["objective.head=hidden", "objective.usages_per_item=3", USAGE], 4, []
    for weights in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 2.0, 3.0)):
        named = zip(("rank", "sense", "meaning"), weights, strict=True)
        objective = build(*options, *(f"objective.loss.{term}_weight={w}" for term, w in named))
        scorer = objective.head
        torch.nn.init.ones_(scorer.sense_head.weight[0])
        batch = objective.batch(0, [1, 4, 6])
        e = torch.randn(len(batch.requests), WIDTH, generator=torch.Generator().manual_seed(3))
        terms.append(objective.loss(e, batch).loss.item())
    assert terms[3] == pytest.approx(terms[0] + 2 * terms[1] + 3 * terms[2], rel=1e-5)
    items, width = [ITEMS[i] for i in (1, 4, 6)], num_sense + 6
    _, item_logits, by_expert = scorer(items, e[: 3 * width].view(3, width, WIDTH))
    gold = route(by_expert, torch.tensor([int(item.sense == "literal") for item in items]))
    ranks = torch.tensor([item.gold_ranks for item in items])
    assert terms[0] == pytest.approx(PairwiseHingeLoss()(gold, ranks).item(), rel=1e-5)
    rows = slice(3 * width, 3 * width + 9 * num_sense)
    logits = torch.cat([item_logits, scorer.sense(e[rows].view(9, num_sense, WIDTH))[1]])
    by_text = {f"{u.phrase} [SEP] {u.sentence}": u for u in USAGES}
    senses = [int(item.sense == "literal") for item in items]
    senses += [int(not by_text[r.text].is_idiomatic) for r in batch.requests[rows][::num_sense]]
    naive = [-math.log(row.softmax(0)[sense].item()) for row, sense in zip(logits, senses, strict=True)]
    assert terms[1] == pytest.approx(sum(naive) / len(naive), rel=1e-5)


def test_meanings_and_rows_without_idiom_of_a_batch(build: Build) -> None:
    objective = build(USAGE)
    batch = objective.batch(0, [0, 5])  # "lion's share" has no meanings in the sample's table
    captions = {c.caption for i in (0, 5) for c in ITEMS[i].candidates}
    assert {batch.requests[row].text for row in batch.plain_rows} == captions
    assert len(batch.plain_rows) == 10
    assert all(batch.requests[row] in objective.plain_requests for row in batch.plain_rows)
    _, sentences, texts = batch.targets
    assert [request.text for request in batch.requests[-len(texts) :]] == texts
    idiomatic, literal = objective._meanings(sentences[0])
    assert (list(idiomatic), set(literal) <= set(texts)) == (["powerless threat"], True)
    assert objective._meanings(sentences[1]) == ((), ())
    assert sum(not any(objective._meanings(usage)) for usage in objective._sentences) == 5
    assert objective.special_tokens.keys() == {"separator", "mask"}


def test_usages_take_turns(build: Build) -> None:
    """Every sentence comes once before any comes again, whatever an epoch's order of items is."""
    objective = build("objective.usages_per_item=3")
    seen: list[str] = []
    for epoch in range(3):
        for shard in (shard for step in objective.epoch_steps(epoch, 2) for shard in step):
            requests = objective.batch(epoch, shard).requests
            seen += [r.text for r in requests[7 * len(shard) : 10 * len(shard)]]
    counts = [seen.count(f"{u.phrase} [SEP] {u.sentence}") for u in USAGES]
    assert sum(counts) == 3 * 8 * 3
    assert max(counts) - min(counts) <= 1


def test_data_that_cannot_be_learnt_from(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items without gold are refused; a compound with meanings of one sense alone has none."""
    senses = {plain_expression(ITEMS[0].compound): CompoundMeanings("paper tiger", "a toy", ())}
    monkeypatch.setattr("idiomtune.admire.objective.read_senses", lambda _: senses)
    objective = build()
    assert not any(map(any, map(objective._meanings, objective._sentences)))
    split = replace(SPLIT, items=(replace(ITEMS[0], gold_ranks=None),))
    monkeypatch.setattr("idiomtune.admire.objective.admire_split", lambda *_, **__: split)
    refused(build, "train_")


def test_a_folds_compounds_are_nowhere_in_training(build: Build) -> None:
    scored: list[str] = []
    for fold in (0, 1):
        objective = build("+protocol=cross_validation_admire", f"data.fold={fold}", "data.folds=2")
        compounds = {plain_expression(item.compound) for item in fold_items(SPLIT, fold, 2)[1].items}
        assert not compounds & {plain_expression(phrase) for phrase, _ in objective.idiom_sentences}
        scored += compounds
    assert len(set(scored)) == len(scored) == 8


def test_printed_senses_come_first_then_items(build: Build) -> None:
    """Each sentence and each item once an epoch of its own; `beside`: both in every epoch."""
    for stage in ("first", "beside"):
        objective = build(f"objective.sense_encoder.stage={stage}", system="aima")
        num = len(objective.idiom_sentences)
        epochs = [[step for (step,) in objective.epoch_steps(epoch, 1)] for epoch in (0, 1)]
        steps = [step for epoch in epochs for step in epoch]
        assert len(epochs[0]) == len(epochs[1])
        kinds = [{anchor >= num for anchor in step} for step in steps]
        assert all(len(kind) == 1 for kind in kinds)
        anchors = sorted(anchor for step in steps for anchor in step)
        assert anchors == sorted(2 * list(range(num + len(ITEMS))))
        if stage == "first":
            assert kinds == sorted(kinds, key=lambda kind: True in kind)
        else:
            assert all({True} in kinds[i : i + len(epochs[0])] for i in (0, len(epochs[0])))


def test_printed_each_kind_of_step_trains_its_own_weights(build: Build) -> None:
    """Ranking leaves the sense encoder alone, and by gold sense trains one expert; `beside` it does not."""
    for stage in ("first", "beside"):
        objective = build(f"objective.sense_encoder.stage={stage}", system="aima")
        scorer, num = objective.head, len(objective.idiom_sentences)
        e = torch.randn(4, WIDTH, requires_grad=True)
        objective.loss(e, objective.batch(0, [0, 1, 2, num - 1])).loss.backward()
        assert e.grad is not None
        trained = {name for name, p in scorer.named_parameters() if p.grad is not None}
        assert {name.split(".")[0] for name in trained} == {"sense_head", "sense_encoder"}
        scorer.zero_grad()
        batch = objective.batch(0, [num + i for i, item in enumerate(ITEMS) if item.sense == "idiomatic"])
        assert not batch.requests
        objective.loss(torch.zeros(0, WIDTH), batch).loss.backward()
        trained = {".".join(n.split(".")[:2]) for n, p in scorer.named_parameters() if p.grad is not None}
        own = {"text_layers.0", "idiomatic.inputs", "idiomatic.score"}
        assert {name for name in trained if not name.startswith("sense_encoder")} == own
        assert bool(trained - own) == (stage == "beside")


def test_printed_all_sentences_are_learnt_from(
    build: Build, real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,645 of AStitch, repeated rows included, and an item's own; dev and test then test nothing."""
    monkeypatch.setenv("IDIOM_DATA", str(real_data))
    everything = "[train_zero_shot,train_one_shot,train_few_shot,dev,test]"
    options = ["data=public", f"objective.astitch={everything}", "objective.captions.summariser=null"]
    objective = build(*options, system="aima")
    assert (len(objective._sentences), len(objective._usages)) == (4695, 4645)
    assert sum(map(len, objective.epoch_steps(0, 1))) == math.ceil(4695 / 4) + math.ceil(50 / 4)


@pytest.mark.parametrize(
    ("files", "scored"),
    [("train_zero_shot", ["astitch_dev", "astitch_test"]), ("train_zero_shot,dev", ["astitch_test"])],
)
def test_no_compound_is_scored_that_a_file_of_astitch_has(
    build: Build, files: str, scored: list[str]
) -> None:
    """The sample's files share compounds as the published ones do. What AdMIRe's items have is scored."""
    chosen = f"objective.astitch=[{files}]"
    settings = validate(TrainSettings, composed("train", "+experiment=admire_experts", "data=sample", chosen))
    objective = build(chosen)
    benchmarks, _ = benchmarks_of(settings)
    (benchmark,) = module_benchmarks(settings.inputs, objective.head, benchmarks)
    assert isinstance(benchmark, ExpertsBenchmark)
    assert list(benchmark.usages) == scored
    keys = list(map(str, settings.objective.possible_scores(lambda name: settings.splits(name))))
    assert {key.split("/")[1] for key in keys if "astitch" in key} == set(scored)
    seen = {plain_expression(phrase) for phrase, _ in objective.idiom_sentences[len(ITEMS) :]}
    for corpus in benchmark.usages.values():
        assert not seen & {plain_expression(usage.phrase) for usage in corpus.usages}


def test_the_benchmark_routes_by_the_predicted_sense(build: Build, tmp_path: Path) -> None:
    """A head that calls everything literal: the whole system is the literal expert."""
    scorer = build("objective.head=hidden", "objective.cosine=null").head
    with torch.no_grad():
        scorer.sense_head.weight.zero_()
        scorer.sense_head.bias.copy_(torch.tensor([0.0, 1.0]))
    senses = (("a", "x y", True), ("b", "y x", False), ("c", "z", True))
    usages = tuple(LabelledUse(id_, "x", text, None, is_idiomatic) for id_, text, is_idiomatic in senses)
    benchmark = ExpertsBenchmark(scorer, [SPLIT], {"astitch_dev": UsageCorpus(usages, ())})
    assert len(benchmark.requests) == 7 * 8 + 3
    e = embeddings(scorer)
    result = benchmark.score(in_turn(torch.cat([e.flatten(0, 1), torch.randn(3, WIDTH)])))
    literal = scorer(ITEMS, e)[2][1]
    records = [r for r in result.per_query if (r["split"], r["mode"]) == ("train", "experts_text")]
    for item, record, row in zip(ITEMS, records, literal, strict=True):
        assert (record["id"], record["predicted_sense"]) == (item.id, "literal")
        assert record["order"][0] == item.candidates[int(row.argmax())].name
    scores = result.by_key
    share = sum(item.sense == "literal" for item in ITEMS) / 8
    expected = {
        "train/experts_text/sense_accuracy": share,
        "train/majority/sense_accuracy": max(share, 1 - share),
        **{"astitch_dev/experts_text/sense_accuracy": 1 / 3, "astitch_dev/majority/sense_accuracy": 2 / 3},
        "astitch_dev/experts_text/sense_accuracy/idiomatic": 0,
        "astitch_dev/experts_text/sense_accuracy/literal": 1,
        "astitch_dev/experts_text/sense_macro_f1": (0 + 2 / 4) / 2,
    }
    assert {key: scores[f"admire/{key}"] for key in expected} == pytest.approx(expected)
    assert set(scores) == set(map(str, experts_scores(["train", "astitch_dev"], "experts_text")))
    # A report's page finds no record damaged, whether of an item or of a sense alone.
    write_lines(tmp_path / "per_query" / "admire.jsonl", result.per_query)
    shown, damage = benchmark_report(RunResults(tmp_path, "run", "finished"), "admire")
    assert shown is not None
    assert not damage
    same = "admire/train/experts_text{}/ndcg@5/literal"
    assert scores[same.format("")] == scores[same.format("_gold_sense")]
    assert scorer.training


@pytest.mark.parametrize("system", ["admire", "aima"])
def test_a_saved_scorer_scores_the_same(build: Build, tmp_path: Path, system: str) -> None:
    scorer = build(system=system).head.eval()
    scorer.publish(tmp_path)
    e, loaded = embeddings(scorer), load(tmp_path, CPU).eval()
    loaded.prepare(ITEMS)
    for before, after in zip(scorer(ITEMS, e), loaded(ITEMS, e), strict=True):
        assert torch.equal(before, after)


def test_damaged_experts_are_named(build: Build, tmp_path: Path) -> None:
    build().head.publish(tmp_path)
    for file, old, new in (
        ("experts.safetensors", b"sense_map", b"sense_cap"),
        ("experts.json", b'"hidden": 128', b'"hidden": "128"'),
    ):
        path = tmp_path / "experts" / file
        content = path.read_bytes()
        path.write_bytes(content.replace(old, new))
        refused(lambda: load(tmp_path, CPU), str(path))
        path.write_bytes(content)
    (tmp_path / "experts" / "experts.safetensors").unlink()
    refused(lambda: load(tmp_path, CPU), "experts.safetensors")


def test_settings_that_do_not_fit() -> None:
    for experiment, wrong, named in (
        ("admire_experts", "data.fold=0", "cross_validation_admire"),
        ("admire_experts", "objective.ablation=clip_cosine", "clip.path"),
        ("admire_experts", "forgetting.distillation=1.0", "trainer.freeze_encoder"),
        ("admire_experts", "benchmark=[idiolink]", "admire/train/experts_text/ndcg@5"),
        ("admire_aima", "objective.clip.path=null", "clip.path"),
        ("admire_aima", "objective.sense_encoder.epochs=31", "sense_encoder.epochs=31"),
        ("idiolink_ft", "trainer.freeze_encoder=true", "trainer.freeze_encoder"),
    ):
        config = composed("train", f"+experiment={experiment}", wrong)
        refused(lambda config=config: validate(TrainSettings, config), named)  # type: ignore[misc]
