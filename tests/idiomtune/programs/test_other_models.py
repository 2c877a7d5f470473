"""Models of other families than the packaged one: special tokens, prompts, what check and train agree on."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from idiomtune import Encoder
from idiomtune.config import TrainSettings, validate
from idiomtune.programs.check import check as check_data
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.objective import build_objective
from idiomtune.training.prepare import prepare
from tests.programs import refused
from tests.tiny_families import FAMILIES, WIDTH, tiny_checkpoint
from tests.tiny_runs import composed, resume, train
from tools.model_runs import ModelRun

IDIOLINK = ["data=sample", "trainer.batch_size=16", "device=cpu", "benchmark=[idiolink]"]
IDIOLINK += ["benchmark.idiolink.bm25_modes=[]", "model.tokens_per_forward=8192"]
MASKED = "objective.query_mode=[span,masked_span]"


def with_mask(family: str, mask: str | None, folder: Path) -> Path:
    """A checkpoint of the family whose tokenizer has this mask token, or none."""
    kind = FAMILIES[family]
    special = kind.special if mask is None else kind.special | {"mask_token": mask}
    return tiny_checkpoint(replace(kind, special=special), folder)


def settings_of(model: Path, *options: str) -> TrainSettings:
    """Checked settings of a run with a model."""
    overrides = ["model=pretrained", f"model.path={model}", *IDIOLINK, *options]
    settings: TrainSettings = validate(TrainSettings, composed("train", *overrides))
    return settings


@pytest.mark.parametrize(("family", "mask"), [("bert", "[MASK]"), ("roberta", "<m>")])
def test_the_mask_is_the_models_own(family: str, mask: str, tmp_path: Path) -> None:
    model = with_mask(family, mask, tmp_path / "model")
    objective: Any = build_objective(settings_of(model, MASKED))
    assert objective.special_tokens == {"mask": mask}
    assert any(mask in request.text for request in objective.batch(0, [0, 1]).requests)
    check_data(settings_of(model, MASKED))


def test_a_mask_is_the_models_own_in_a_part_too_and_not_another_models(tmp_path: Path) -> None:
    model = with_mask("mpnet", "<mask>", tmp_path / "model")
    anothers = settings_of(model, MASKED, "objective.mask='[MASK]'")
    refused(lambda: prepare(anothers), "objective.mask='[MASK]'")  # as training does
    part = "+objective.parts.idioms={objective: idiolink, options: {query_mode: masked_span}}"
    objective: Any = build_objective(settings_of(model, "objective=mixture", part))
    assert objective.special_tokens == {"parts.idioms.options.mask": "<mask>"}


def test_a_model_without_a_mask_is_refused_where_a_mode_hides_spans_and_only_there(tmp_path: Path) -> None:
    model = with_mask("qwen3", None, tmp_path / "model")
    check_data(settings_of(model))
    refused(lambda: check_data(settings_of(model, MASKED)), "objective.mask")
    check_data(settings_of(model, MASKED, "objective.mask=something"))


@pytest.mark.slow
def test_a_masked_run_is_resumed_as_the_whole_one_also_if_the_base_model_is_gone(tmp_path: Path) -> None:
    model = with_mask("roberta", "<mask>", tmp_path / "model")
    options = ["model=pretrained", f"model.path={model}", *IDIOLINK, MASKED, "trainer.max_steps=4"]
    train(tmp_path / "run", [*options, "eval.every=2", "trainer.warmup_ratio=0"])
    shutil.rmtree(model)
    shutil.rmtree(tmp_path / "run" / "step_4")
    resume(tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "finished"


@pytest.mark.slow
def test_the_cards_snippets_pass_spans_through_what_follows_the_pooling(tmp_path: Path) -> None:
    """A dense layer, and a prompt that is written before every text unless another one is named."""
    checkpoint = tiny_checkpoint(FAMILIES["t5"], tmp_path / "checkpoint")
    dense = Dense(WIDTH, 16, activation_function=torch.nn.Tanh())
    modules = [Transformer(str(checkpoint)), Pooling(WIDTH, pooling_mode="mean"), dense]
    prompts = {"query": "query: ", "document": "passage: "}
    model = SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name="query", device="cpu")
    model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    run = ModelRun(str(tmp_path / "model"), tmp_path)
    run.training.append("benchmark.idiolink.bm25_modes=[]")
    run.train()
    run.snippets()


@pytest.mark.parametrize(
    ("family", "own_class"), [("mistral", ""), ("t5", ""), ("xlm_roberta", "XLMRobertaTokenizer")]
)
def test_a_full_stop_after_an_idiom_token_is_one_piece(family: str, own_class: str, tmp_path: Path) -> None:
    """In memory, saved, and loaded again. The library's own XLM-R drops blanks before it looks for words:
    there each word gets a mark, and one after a token too, as it is saved."""
    model = with_mask(family, "<mask>", tmp_path / "model")
    path = model / "tokenizer_config.json"
    if own_class:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": own_class}))
    encoder = Encoder.from_pretrained(model, device="cpu", pooling="mean")
    text, plain = "He broke the ice. Broke the ice, then (broke the ice).", "The boat went down."
    before = encoder.encode([plain])
    encoder.add_idiom_tokens(["broke the ice"])
    assert torch.equal(encoder.encode([plain]), before)

    def pieces(of: Encoder) -> list[str]:
        tokenizer: Any = of.model.tokenizer
        ids: list[str] = tokenizer.convert_ids_to_tokens(
            of.reader.read([EmbeddingRequest(text)])[0].tokens.input_ids
        )
        return ids

    read = pieces(encoder)
    after = [read[i + 1] for i, piece in enumerate(read) if piece == "IDbroketheiceID"]
    assert len(after) == 3
    assert own_class or "▁" not in after
    encoder.save(tmp_path / "saved")
    again = Encoder.from_pretrained(tmp_path / "saved", device="cpu")
    assert pieces(again) == read
    assert torch.equal(again.encode([text]), encoder.encode([text]))


def test_an_argument_that_would_be_ignored_is_refused(tiny_path: Path) -> None:
    value: Any = ["broke the ice"]
    for name in ("idiom_tokens", "idiom_tokens_start", "glossary_dropout", "nonsense"):
        error = refused(lambda name=name: Encoder.from_pretrained(tiny_path, **{name: value}))  # type: ignore[misc]
        assert error.option == name
