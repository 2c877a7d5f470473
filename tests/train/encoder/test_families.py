"""Every model family of conf/model, as a tiny checkpoint: pooling, spans, a training step, saving, LoRA."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from tests.tiny_families import CORPUS, FAMILIES, POSITIONS, WIDTH, tiny_checkpoint
from tests.tiny_objectives import idiolink
from train.config.sections import LoraSettings
from train.data.idiolink import Split, draw_tuples, load_split
from train.encoder.encoder import Encoder
from train.encoder.trained_parts import Adapters
from train.errors import UserError
from train.requests import Request

pytestmark = pytest.mark.slow

TEXTS = CORPUS[:4]
SPANS = ["broke the ice", "ice broke", "the cat out of the bag", "raining cats and dogs"]
LONG = " ".join(CORPUS * 4)

families = pytest.mark.parametrize("name", FAMILIES)
decoders = pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.decoder])


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The checkpoint's folder of a family, made when first asked for."""
    return cache(lambda name: tiny_checkpoint(FAMILIES[name], tmp_path_factory.mktemp(name) / "checkpoint"))


@pytest.fixture
def encoder(paths: Any, name: str) -> Encoder:
    return Encoder.from_pretrained(paths(name), device="cpu", pooling=FAMILIES[name].pooling)


def hidden(encoder: Encoder, text: str) -> tuple[Tensor, Tensor, list[int], list[tuple[int, int]]]:
    """One text alone, unpadded: (T, D) of the last layer and of the one before; its tokens, their offsets."""
    transformer: Any = encoder.model[0]
    tokenizer: Any = encoder.model.tokenizer
    encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    offsets = [(s, e) for s, e in encoded.pop("offset_mapping")[0].tolist()]
    with torch.no_grad():
        states = transformer.auto_model(**encoded, output_hidden_states=True).hidden_states
    return states[-1][0], states[-2][0], encoded["input_ids"][0].tolist(), offsets


def pooled(pooling: str, last: Tensor, before: Tensor) -> Tensor:
    """By hand."""
    if pooling == "cls":
        return last[0]
    if pooling == "lasttoken":
        return last[-1]
    if pooling == "cls+sep":
        return last[0] + last[-1]
    if pooling == "last2":
        return ((last + before) / 2).mean(0)
    if pooling == "weightedmean":
        weighted = torch.stack([(i + 1) * h for i, h in enumerate(last)])
        return weighted.sum(0) / sum(range(1, len(last) + 1))
    assert pooling == "mean"
    return last.mean(0)


def unit(rows: Tensor) -> Tensor:
    return torch.nn.functional.normalize(rows, dim=-1)


@families
def test_sentences_in_a_padded_batch_equal_each_alone_pooled_by_hand(encoder: Encoder, name: str) -> None:
    expected = [pooled(FAMILIES[name].pooling, *hidden(encoder, text)[:2]) for text in TEXTS]
    assert len({len(hidden(encoder, text)[2]) for text in TEXTS}) > 1  # so that there is padding
    embeddings = encoder.encode(TEXTS)
    torch.testing.assert_close(embeddings, torch.stack(expected), atol=2e-5, rtol=0)
    assert (unit(embeddings) @ unit(embeddings).T).fill_diagonal_(0).max() < 0.999


@families
def test_spans_in_a_padded_batch_are_the_mean_of_their_own_tokens(encoder: Encoder, name: str) -> None:
    """Also where offsets take in the space before a word: not the neighbours' tokens."""
    expected = []
    for text, span in zip(TEXTS, SPANS, strict=True):
        last, before, _, offsets = hidden(encoder, text)
        start = text.index(span)
        inside = [i for i, (s, e) in enumerate(offsets) if s < start + len(span) and e > start and s < e]
        assert text[offsets[inside[0]][0] : offsets[inside[-1]][1]].strip(" ,:") == span
        layers = (last + before) / 2 if FAMILIES[name].pooling == "last2" else last
        expected.append(layers[inside].mean(0))
    torch.testing.assert_close(
        unit(encoder.encode(TEXTS, SPANS)), unit(torch.stack(expected)), atol=2e-5, rtol=0
    )


@families
def test_a_training_step_in_all_query_modes(encoder: Encoder, sample_root: Path) -> None:
    split: Split = load_split(sample_root, "train")
    objective = idiolink(
        split,
        lambda epoch: draw_tuples(
            split.queries, split.documents, num_positives=1, num_hard=1, num_soft=1, seed=[0, epoch]
        ),
        query_mode=["sentence", "span", "instruction_sentence", "instruction_span"],
    )
    batch = objective.batch(0, [0, 1])
    encoder.train()
    loss = objective.loss(encoder(batch.requests), batch).loss
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in encoder.parameters() if p.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert sum(bool(gradient.any()) for gradient in gradients) > 10
    before = encoder.encode(TEXTS)
    trained = [p for p in encoder.parameters() if p.requires_grad]
    torch.optim.AdamW(trained, lr=1e-2).step()
    assert not torch.allclose(encoder.encode(TEXTS), before, atol=1e-4)


@families
def test_a_saved_model_is_the_same_by_us_and_by_plain_sentence_transformers(
    encoder: Encoder, tmp_path: Path
) -> None:
    """With its pooling, its end token and its maximum length."""
    expected, expected_long = encoder.encode(TEXTS), encoder.encode([LONG])
    encoder.save(tmp_path / "model")
    ours = Encoder.from_pretrained(tmp_path / "model", device="cpu")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    torch.testing.assert_close(ours.encode(TEXTS), expected, atol=1e-6, rtol=0)
    for texts, embeddings in ((TEXTS, expected), ([LONG], expected_long)):
        torch.testing.assert_close(
            theirs.encode(texts, convert_to_tensor=True), embeddings, atol=2e-5, rtol=0
        )
    assert [p.requires_grad for p in ours.parameters()] == [p.requires_grad for p in encoder.parameters()]


@families
def test_a_text_is_cut_where_the_positions_end_and_keeps_its_end_token(
    encoder: Encoder, paths: Any, name: str
) -> None:
    limit = None if name == "t5" else POSITIONS
    ids = encoder._tokenizer([LONG])[0].input_ids
    assert len(ids) == limit or (limit is None and len(ids) > POSITIONS)
    assert torch.isfinite(encoder.encode([LONG])).all()
    tokenizer: Any = encoder.model.tokenizer
    if FAMILIES[name].pooling in ("lasttoken", "cls+sep"):
        assert ids[-1] == tokenizer("Short.")["input_ids"][-1]
        assert ids[-1] in tokenizer.all_special_ids
    if limit is not None:
        with pytest.raises(UserError, match=rf"max_length={POSITIONS + 1}: the model .* has {POSITIONS} pos"):
            Encoder.from_pretrained(paths(name), device="cpu", max_length=POSITIONS + 1)


@decoders
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # by peft
def test_lora_trains_adapters_that_reload_alone_and_merged(
    encoder: Encoder, paths: Any, name: str, tmp_path: Path
) -> None:
    settings = LoraSettings(rank=2, alpha=4.0, dropout=0.0, target_modules=None)
    adapters = Adapters(encoder, settings, seed=0, base_model=str(paths(name)))
    base = encoder.encode(TEXTS)
    encoder([Request(text) for text in TEXTS]).sum().backward()
    torch.optim.AdamW([p for p in encoder.parameters() if p.requires_grad], lr=1e-2).step()
    tuned = encoder.encode(TEXTS)
    assert not torch.allclose(tuned, base, atol=1e-3)

    with adapters.merged():
        encoder.save(tmp_path / "merged")
    merged = SentenceTransformer(str(tmp_path / "merged"), device="cpu")
    torch.testing.assert_close(merged.encode(TEXTS, convert_to_tensor=True), tuned, atol=1e-4, rtol=1e-4)

    adapters.save(tmp_path / "adapter")
    plain = Encoder.from_pretrained(paths(name), device="cpu", pooling=FAMILIES[name].pooling)
    transformer: Any = plain.model[0]
    PeftModel.from_pretrained(transformer.auto_model, str(tmp_path / "adapter"))
    torch.testing.assert_close(plain.encode(TEXTS), tuned, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["mistral", "llama", "qwen2", "qwen3", "gemma2"])
def test_a_decoder_made_bidirectional_sees_ahead_and_stays_so(paths: Any, name: str, tmp_path: Path) -> None:
    """The first word's embedding depends on what follows it only with `bidirectional`."""

    def first_words(encoder: Encoder) -> Tensor:
        return encoder.encode(["The ice broke.", "The ice melted."], ["The", "The"])

    causal = first_words(Encoder.from_pretrained(paths(name), device="cpu", pooling="mean"))
    torch.testing.assert_close(causal[0], causal[1])
    both = Encoder.from_pretrained(paths(name), device="cpu", pooling="mean", bidirectional=True)
    first, second = first_words(both)
    assert not torch.allclose(first, second, atol=1e-3)
    alone = torch.cat([both.encode([text]) for text in TEXTS])
    torch.testing.assert_close(both.encode(TEXTS), alone, atol=2e-5, rtol=0)
    both.save(tmp_path / "model")
    torch.testing.assert_close(
        SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS, convert_to_tensor=True),
        alone,
        atol=2e-5,
        rtol=0,
    )


def test_instructor_leaves_the_prompt_out_of_the_mean(paths: Any, tmp_path: Path) -> None:
    """T5 encoder → mean without the prompt → dense → normalise, as sentence-transformers does it."""
    torch.manual_seed(0)
    model = SentenceTransformer(
        modules=[
            Transformer(str(paths("t5"))),
            Pooling(WIDTH, pooling_mode="mean", include_prompt=False),
            Dense(WIDTH, 16, bias=False, activation_function=torch.nn.Identity()),
            Normalize(),
        ],
        device="cpu",
    )
    model.save_pretrained(str(tmp_path / "instructor"), create_model_card=False)
    prompt = "Represent the query for passages: "
    encoder = Encoder.from_pretrained(
        tmp_path / "instructor",
        device="cpu",
        query_prompt=prompt,
        instruction_prompt="Represent {instruction}: {query}",
    )
    theirs = model.encode(TEXTS, prompt=prompt, convert_to_tensor=True)
    torch.testing.assert_close(encoder.encode(TEXTS, role="query"), theirs, atol=1e-6, rtol=0)
    torch.testing.assert_close(encoder.encode(TEXTS), model.encode(TEXTS, convert_to_tensor=True))
    requests = [Request(t, role="query", instruction="x" * i) for i, t in enumerate(TEXTS)]
    one_by_one = [
        model.encode(t, prompt=f"Represent {'x' * i}: ", convert_to_tensor=True) for i, t in enumerate(TEXTS)
    ]
    torch.testing.assert_close(encoder(requests), torch.stack(one_by_one), atol=1e-6, rtol=0)


# The readings of the ε-compositionality paper's models, whose tables are of these architectures.
READINGS = [
    *(
        (name, pooling)
        for name in ("bert", "modernbert", "deberta_v3")
        for pooling in ("cls", "cls+sep", "last4")
    ),
    ("gpt_neo", "weightedmean"),
    ("bert", "mean"),
    ("xlm_roberta", "mean"),
    ("qwen3", "mean"),
    ("qwen3", "lasttoken"),
]


@pytest.mark.parametrize(("name", "pooling"), READINGS)
def test_the_readings_of_epsilons_models(name: str, pooling: str, tmp_path: Path) -> None:
    """Each against its definition, on each text alone, from hidden states of the library's own class."""
    family = FAMILIES[name]
    deep: dict[str, Any] = {"num_hidden_layers": 6}
    if name == "gpt_neo":
        deep |= {"num_layers": 6, "attention_types": [[["global", "local"], 3]]}
    checkpoint = tiny_checkpoint(replace(family, config={**family.config, **deep}), tmp_path / "model")
    tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
    model: Any = AutoModel.from_pretrained(checkpoint).eval()
    expected = []
    for text in TEXTS:
        with torch.no_grad():
            states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        assert len(states) == 7
        if pooling == "last4":
            expected.append(sum(states[layer][0] for layer in (3, 4, 5, 6)).mean(0) / 4)
        else:
            expected.append(pooled(pooling, states[-1][0], states[-2][0]))
    encoder = Encoder.from_pretrained(checkpoint, device="cpu", pooling=pooling)
    torch.testing.assert_close(encoder.encode(TEXTS), torch.stack(expected), atol=3e-5, rtol=0)


@pytest.mark.parametrize("pooling", ["mean", "last2"])
def test_raw_spans_pass_the_dense_layer_by(paths: Any, pooling: str, tmp_path: Path) -> None:
    """As IdioLink's code has it: the last hidden states, whatever follows the transformer."""
    torch.manual_seed(0)
    model = SentenceTransformer(
        modules=[
            *Encoder.from_pretrained(paths("t5"), device="cpu", pooling=pooling).model,
            Dense(WIDTH, WIDTH, bias=False, activation_function=torch.nn.Tanh()),
            Normalize(),
        ],
        device="cpu",
    )
    model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    own = Encoder.from_pretrained(tmp_path / "model", device="cpu")
    raw = Encoder.from_pretrained(tmp_path / "model", device="cpu", span="raw")
    expected = []
    for text, span in zip(TEXTS, SPANS, strict=True):
        last, _, _, offsets = hidden(raw, text)
        start = text.index(span)
        inside = [i for i, (s, e) in enumerate(offsets) if s < start + len(span) and e > start and s < e]
        expected.append(last[inside].mean(0))
    spans = torch.stack(expected)
    torch.testing.assert_close(raw.encode(TEXTS, SPANS), spans, atol=2e-5, rtol=0)
    torch.testing.assert_close(raw.encode(TEXTS), own.encode(TEXTS))
    assert not torch.allclose(unit(own.encode(TEXTS, SPANS)), unit(spans), atol=1e-2)
    # A document and a span of the same text, in one forward pass.
    both = raw([Request(TEXTS[0], (3, 16), pooling="span"), Request(TEXTS[0])])
    torch.testing.assert_close(both[:1], spans[:1], atol=2e-5, rtol=0)
    torch.testing.assert_close(both[1:], own.encode(TEXTS[:1]))


def test_raw_spans_of_another_width_are_refused(paths: Any, tmp_path: Path) -> None:
    model = SentenceTransformer(
        modules=[Transformer(str(paths("t5"))), Pooling(WIDTH), Dense(WIDTH, 16)], device="cpu"
    )
    model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    with pytest.raises(UserError, match=rf"model\.span=raw: .* {WIDTH} dimensions .* 16"):
        Encoder.from_pretrained(tmp_path / "model", device="cpu", span="raw")


def test_cls_sep_needs_both_tokens(paths: Any) -> None:
    with pytest.raises(
        UserError, match=r"model\.pooling=cls\+sep: its tokenizer puts no \[CLS\] and \[SEP\]"
    ):
        Encoder.from_pretrained(paths("t5"), device="cpu", pooling="cls+sep")


def test_code_that_comes_with_a_checkpoint_is_not_run_unasked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the library knows the architecture it says so; where not, the error names the option."""
    folder = tiny_checkpoint(FAMILIES["qwen2"], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoModel": "modeling_own.OwnModel", "AutoConfig": "modeling_own.OwnConfig"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    Encoder.from_pretrained(folder, device="cpu", pooling="lasttoken")
    assert "its own code, which is not run" in caplog.text
    config["model_type"] = "own"
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UserError, match=r"read the code, then model\.trust_remote_code=true runs it"):
        Encoder.from_pretrained(folder, device="cpu", pooling="lasttoken")


def test_checkpoints_are_of_the_classes_that_the_library_loads(paths: Any) -> None:
    assert type(AutoModel.from_pretrained(paths("deberta_v3"))).__name__ == "DebertaV2Model"
    t5: Any = Encoder.from_pretrained(paths("t5"), device="cpu", pooling="mean").model[0]
    assert type(t5.auto_model).__name__ == "T5EncoderModel"
