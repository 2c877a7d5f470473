"""Every model family of conf/model, as a tiny checkpoint: pooling, spans, saving, attention, LoRA."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor
from torch.nn.functional import normalize
from torch.testing import assert_close

from idiomtune import Encoder
from idiomtune.config.sections import LoraSettings
from idiomtune.encoder.reading import Tokenizer
from idiomtune.encoder.trained_parts import Adapters
from idiomtune.errors import UserError
from idiomtune.requests import EmbeddingRequest, LayersRequest
from tests.tiny_families import CORPUS, FAMILIES, POSITIONS, WIDTH, tiny_checkpoint

pytestmark = pytest.mark.slow

# BERT, Llama and Qwen2 are read as others here are.
NAMES = sorted(FAMILIES.keys() - {"bert", "llama", "qwen2"})
TEXTS = CORPUS[:4]
SPANS = ["broke the ice", "ice broke", "the cat out of the bag", "raining cats and dogs"]
LONG = " ".join(CORPUS * 4)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The checkpoint's folder of a family, made when first asked for."""
    return cache(lambda name: tiny_checkpoint(FAMILIES[name], tmp_path_factory.mktemp(name) / "checkpoint"))


def load(path: Path, pooling: str | None = None, **options: Any) -> Encoder:
    return Encoder.from_pretrained(path, device="cpu", pooling=pooling, **options)


def plain(folder: Path, texts: list[str]) -> Tensor:
    """Their embeddings by sentence-transformers alone."""
    return SentenceTransformer(str(folder), device="cpu").encode(texts, convert_to_tensor=True)


def hidden(encoder: Encoder, text: str) -> tuple[list[Tensor], list[tuple[int, int]]]:
    """One text alone, unpadded: (T, D) of each layer; its tokens' offsets."""
    encoded = encoder.model.tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    offsets = [(s, e) for s, e in encoded.pop("offset_mapping")[0].tolist()]
    with torch.no_grad():
        states = encoder.transformer(**encoded, output_hidden_states=True).hidden_states
    return [layer[0] for layer in states], offsets


def pooled(pooling: str, states: list[Tensor]) -> Tensor:
    """By hand."""
    last = states[-1]
    if pooling == "weightedmean":
        weighted = torch.stack([(i + 1) * h for i, h in enumerate(last)])
        return weighted.sum(0) / sum(range(1, len(last) + 1))
    if pooling.startswith("last") and pooling != "lasttoken":
        return torch.stack(states[-int(pooling[4:]) :]).mean(0).mean(0)
    by_hand = {"cls": last[0], "lasttoken": last[-1], "cls+sep": last[0] + last[-1], "mean": last.mean(0)}
    return by_hand[pooling]


def of_span(layer: Tensor, offsets: list[tuple[int, int]], text: str, span: str) -> Tensor:
    """The mean of a span's own tokens, also where offsets include the space before a word."""
    start, end = text.index(span), text.index(span) + len(span)
    inside = [i for i, (s, e) in enumerate(offsets) if s < end and e > start and s < e]
    assert text[offsets[inside[0]][0] : offsets[inside[-1]][1]].strip(" ,:") == span
    return layer[inside].mean(0)


def unit(rows: Tensor) -> Tensor:
    return normalize(rows, dim=-1)


@pytest.mark.parametrize("name", NAMES)
def test_a_family_is_read_padded_pooled_cut_and_saved_as_by_hand(
    paths: Any, name: str, tmp_path: Path
) -> None:
    family = FAMILIES[name]
    encoder = load(paths(name), family.pooling)
    states = [hidden(encoder, text) for text in TEXTS]

    # A padded batch: each text as alone, whatever the padding token's id is; each span by its own tokens.
    embeddings = encoder.encode(TEXTS)
    expected = torch.stack([pooled(family.pooling, layers) for layers, _ in states])
    assert_close(embeddings, expected, atol=2e-5, rtol=0)
    assert (unit(embeddings) @ unit(embeddings).T).fill_diagonal_(0).max() < 0.999
    num_layers = 2 if family.pooling == "last2" else 1
    spans = [
        of_span(torch.stack(layers[-num_layers:]).mean(0), offsets, text, span)
        for (layers, offsets), text, span in zip(states, TEXTS, SPANS, strict=True)
    ]
    assert_close(unit(encoder.encode(TEXTS, SPANS)), unit(torch.stack(spans)), atol=2e-5, rtol=0)
    span = TEXTS[0].index(SPANS[0]), TEXTS[0].index(SPANS[0]) + len(SPANS[0])
    (row,) = encoder.hidden_layers([LayersRequest(TEXTS[0], span)], [0, 1]).view(1, 2, 3, -1)
    for found, layer in zip(row, states[0][0], strict=False):
        assert_close(found[0], unit(layer.sum(0)), atol=1e-5, rtol=0)
        own = of_span(layer, states[0][1], TEXTS[0], SPANS[0])
        assert_close(found[1], unit(own), atol=1e-5, rtol=0)
    tokenizer = Tokenizer(encoder.model)
    ids = [tokens.input_ids for tokens in tokenizer([*CORPUS, "It"])]
    ours = tokenizer.pad(ids, torch.device("cpu"))
    rows = {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]}
    theirs: Any = tokenizer.tokenizer.pad(rows, padding_side="right", return_tensors="pt")
    assert all(torch.equal(ours[key], value) for key, value in theirs.items())
    assert "token_type_ids" not in ours or not ours["token_type_ids"].any()

    # Cut where the positions end, with its end token.
    limit = None if name == "t5" else POSITIONS
    cut = tokenizer([LONG])[0].input_ids
    assert len(cut) == limit or (limit is None and len(cut) > POSITIONS)
    long = encoder.encode([LONG])
    assert torch.isfinite(long).all()
    if family.pooling in ("lasttoken", "cls+sep"):
        wrapped: Any = encoder.model.tokenizer
        assert cut[-1] == wrapped("Short.")["input_ids"][-1]
        assert cut[-1] in wrapped.all_special_ids

    # Saved with its pooling, its end token and its maximum length, for us and for sentence-transformers.
    encoder.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert_close(again.encode(TEXTS), embeddings, atol=1e-6, rtol=0)
    saved = plain(tmp_path / "model", [*TEXTS, LONG])
    assert_close(saved, torch.cat([embeddings, long]), atol=2e-5, rtol=0)
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in encoder.parameters()]


@pytest.mark.parametrize("name", ["gpt_neo", "mistral"])
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # by peft
def test_adapters_are_trained_and_reload_alone_and_merged(paths: Any, name: str, tmp_path: Path) -> None:
    encoder = load(paths(name), FAMILIES[name].pooling)
    lora = LoraSettings(rank=2, alpha=4.0, dropout=0.0, target_modules=None)
    adapters = Adapters(encoder, lora, seed=0, base_model=str(paths(name)))
    linear = [module for module in encoder.transformer.modules() if type(module) is torch.nn.Linear]
    assert len(linear) == 3 * sum("lora_A" in name for name, _ in encoder.named_parameters())  # W, A and B
    base = encoder.encode(TEXTS)
    encoder([EmbeddingRequest(text) for text in TEXTS]).sum().backward()
    torch.optim.AdamW([p for p in encoder.parameters() if p.requires_grad], lr=1e-2).step()
    tuned = encoder.encode(TEXTS)
    assert not torch.allclose(tuned, base, atol=1e-3)
    adapters.save(tmp_path / "alone")
    with adapters.merging():
        encoder.save(tmp_path / "merged")
    assert_close(load(tmp_path / "alone", FAMILIES[name].pooling).encode(TEXTS), tuned, atol=1e-4, rtol=1e-4)
    assert_close(plain(tmp_path / "merged", TEXTS), tuned, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["mistral", "gemma2"])
def test_a_decoder_made_bidirectional_sees_ahead_and_stays_so(paths: Any, name: str, tmp_path: Path) -> None:
    """The first word's embedding depends on what follows it only with `bidirectional`."""
    texts, words = ["The ice broke.", "The ice melted."], ["The", "The"]
    causal = load(paths(name), "mean").encode(texts, words)
    assert_close(causal[0], causal[1])
    both = load(paths(name), "mean", bidirectional=True)
    first, second = both.encode(texts, words)
    assert not torch.allclose(first, second, atol=1e-3)
    alone = torch.cat([both.encode([text]) for text in TEXTS])
    assert_close(both.encode(TEXTS), alone, atol=2e-5, rtol=0)
    both.save(tmp_path / "model")
    assert_close(plain(tmp_path / "model", TEXTS), alone, atol=2e-5, rtol=0)


def with_modules(folder: Path, *modules: Any) -> Path:
    """A sentence-transformers folder of these modules."""
    SentenceTransformer(modules=list(modules), device="cpu").save_pretrained(str(folder))
    return folder


def dense(width: int, activation: torch.nn.Module) -> Dense:
    torch.manual_seed(0)
    return Dense(WIDTH, width, bias=False, activation_function=activation)


def test_raw_spans_pass_the_dense_layer_by(paths: Any, tmp_path: Path) -> None:
    """As IdioLink's code has it: the last hidden states, whatever follows the transformer."""
    modules = [*load(paths("t5"), "last2").model, dense(WIDTH, torch.nn.Tanh()), Normalize()]
    folder = with_modules(tmp_path / "model", *modules)
    own, raw = load(folder), load(folder, span_from="last_hidden_state")
    states = [hidden(raw, text) for text in TEXTS]
    pairs = zip(states, TEXTS, SPANS, strict=True)
    spans = torch.stack([of_span(layers[-1], offsets, *pair) for (layers, offsets), *pair in pairs])
    assert_close(raw.encode(TEXTS, SPANS), spans, atol=2e-5, rtol=0)
    assert_close(raw.encode(TEXTS), own.encode(TEXTS))
    assert not torch.allclose(unit(own.encode(TEXTS, SPANS)), unit(spans), atol=1e-2)


def test_what_a_model_cannot_give_is_refused(paths: Any, tmp_path: Path) -> None:
    """Raw spans of another width; [CLS] and [SEP] where its tokenizer puts none. It is its encoder alone."""
    folder = with_modules(tmp_path / "t5", Transformer(str(paths("t5"))), Pooling(WIDTH), Dense(WIDTH, 16))
    with pytest.raises(UserError, match=rf"model\.span_from=last_hidden_state: .* {WIDTH} dimensions .* 16"):
        load(folder, span_from="last_hidden_state")
    with pytest.raises(UserError, match=r"model\.pooling=cls\+sep"):
        load(paths("t5"), "cls+sep")
    transformer: Any = load(folder).model[0]
    assert type(transformer.auto_model).__name__ == "T5EncoderModel"


def test_code_that_comes_with_a_checkpoint_is_not_run_unasked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the library knows the architecture it says so; where not, the error names the option."""
    folder = tiny_checkpoint(FAMILIES["qwen2"], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoModel": "modeling_own.OwnModel", "AutoConfig": "modeling_own.OwnConfig"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    load(folder, "lasttoken")
    assert "model.trust_remote_code=true" in caplog.text
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own"}), encoding="utf-8")
    with pytest.raises(UserError, match=r"model\.trust_remote_code=true"):
        load(folder, "lasttoken")
