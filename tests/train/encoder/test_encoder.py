"""The encoder: pooling, invariances, one pass a text, loading and saving."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from train.encoder.checks import check_special_token
from train.encoder.encoder import Encoder
from train.encoder.loading import model_settings
from train.encoder.reading import Prompts
from train.errors import UserError
from train.requests import Request

TEXTS = [
    "He broke the ice with a joke about the weather.",
    "The ice broke.",
    "Don't let the cat out of the bag, she said, because nobody else may know about the party yet.",
    "It's raining cats and dogs — bring an umbrella.",
]
SPANS = ["broke the ice", "ice broke", "let the cat out of the bag", "raining cats and dogs"]


def naive_span(encoder: Encoder, text: str, start: int, end: int) -> torch.Tensor:
    """One text alone, unpadded, tokens averaged one by one, normalised."""
    tokenizer: Any = encoder.model.tokenizer
    encoded = tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    offsets = encoded.pop("offset_mapping")[0].tolist()
    transformer: Any = encoder.model[0]
    with torch.no_grad():
        hidden = transformer.auto_model(**encoded).last_hidden_state[0]
    inside = [h for h, (s, e) in zip(hidden, offsets, strict=True) if s < e and s < end and e > start]
    return torch.nn.functional.normalize(torch.stack(inside).mean(0), dim=0)


def test_sentences_equal_plain_sentence_transformers(minilm: Encoder) -> None:
    theirs = minilm.model.encode(TEXTS, convert_to_tensor=True, device="cpu")
    torch.testing.assert_close(minilm.encode(TEXTS), theirs, atol=1e-6, rtol=0)


def test_spans_equal_the_naive_mean_of_their_tokens(minilm: Encoder) -> None:
    ours = minilm.encode(TEXTS, SPANS)
    for row, text, span in zip(ours, TEXTS, SPANS, strict=True):
        start = text.index(span)
        expected = naive_span(minilm, text, start, start + len(span))
        torch.testing.assert_close(row, expected, atol=1e-6, rtol=0)


def test_offsets_pick_the_occurrence(minilm: Encoder) -> None:
    text = "The ice was thin ice."
    first, second = minilm.encode([text, text], [(4, 7), (17, 20)])
    torch.testing.assert_close(first, naive_span(minilm, text, 4, 7), atol=1e-6, rtol=0)
    torch.testing.assert_close(second, naive_span(minilm, text, 17, 20), atol=1e-6, rtol=0)
    assert not torch.allclose(first, second, atol=1e-3)


def test_span_inside_a_word_takes_the_word_pieces_it_touches(minilm: Encoder) -> None:
    text = "She was unbelievably lucky."
    start = text.index("believ")
    ours = minilm.encode([text], [(start, start + len("believ"))])[0]
    torch.testing.assert_close(ours, naive_span(minilm, text, start, start + 6), atol=1e-6, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_embeddings_do_not_depend_on_company_order_or_padding_side(
    minilm: Encoder, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    alone = torch.cat([minilm.encode([t], [s]) for t, s in zip(TEXTS, SPANS, strict=True)])
    alone_sentences = torch.cat([minilm.encode([t]) for t in TEXTS])
    tokenizer: Any = minilm.model.tokenizer
    monkeypatch.setattr(tokenizer, "padding_side", side)
    order = [2, 0, 3, 1]
    for tokens_per_forward in (16, 10_000):
        monkeypatch.setattr(minilm, "tokens_per_forward", tokens_per_forward)
        together = minilm.encode([TEXTS[i] for i in order], [SPANS[i] for i in order])
        torch.testing.assert_close(together, alone[order], atol=2e-6, rtol=0)
        sentences = minilm.encode([TEXTS[i] for i in order])
        torch.testing.assert_close(sentences, alone_sentences[order], atol=2e-6, rtol=0)


def test_each_distinct_text_goes_through_the_model_once(tiny: Encoder) -> None:
    seen: list[int] = []
    requests = [
        Request(TEXTS[0]),
        Request(TEXTS[0], (3, 16), pooling="span"),
        Request(TEXTS[0], (0, 2), role="query", pooling="span"),
        Request(TEXTS[1]),
        Request(TEXTS[0]),
    ]
    embeddings = tiny(requests, on_progress=seen.append)
    assert sum(seen) == 2
    assert torch.equal(embeddings[0], embeddings[4])
    assert not torch.allclose(embeddings[0], embeddings[1])
    assert not torch.allclose(embeddings[1], embeddings[2])


def test_training_and_scoring_share_one_forward_path(tiny: Encoder) -> None:
    """Without dropout, the embedding with gradient is the embedding that is scored."""
    tiny.eval()
    requests = [Request(t, (0, 4), pooling="span") for t in TEXTS] + [Request(t) for t in TEXTS]
    with_gradient = tiny(requests)
    assert with_gradient.requires_grad
    with torch.no_grad():
        assert torch.equal(with_gradient, tiny(requests))


def test_gradients_do_not_depend_on_how_texts_are_cut_into_passes(tiny: Encoder) -> None:
    tiny.eval()
    requests = [Request(t) for t in TEXTS] + [Request(t, (0, 4), pooling="span") for t in TEXTS]
    weights = torch.randn(len(requests), 32, generator=torch.Generator().manual_seed(0))
    gradients = []
    for tokens in (8, 10_000):
        tiny.tokens_per_forward = tokens
        tiny.zero_grad()
        (tiny(requests) * weights).sum().backward()
        gradients.append([p.grad.clone() for p in tiny.parameters() if p.grad is not None])
    assert len(gradients[0]) > 10
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_span_at_the_truncation_edge(tiny: Encoder) -> None:
    """Cut through: the tokens that are left. Cut off: an error that says what to do."""
    tiny.model.max_seq_length = 8  # [CLS], six pieces, [SEP]
    text = "one two three four five six seven eight nine"
    half = text.index("six"), text.index("seven") + len("seven")
    only_six = half[0], half[0] + len("six")
    a, b = tiny.encode([text, text], [half, only_six])
    torch.testing.assert_close(a, b)
    with pytest.raises(UserError, match=r"maximum length \(8 tokens\): raise model.max_length"):
        tiny.encode([text], ["nine"])


def test_spans_that_are_cut_in_two_are_said_once_and_counted(
    tiny_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = Encoder.from_pretrained(tiny_path, device="cpu", max_length=6)
    text = "one two three four five six"  # four words are read
    whole = Request(text, (0, 18), pooling="span")
    cut = Request(text, (8, 23), pooling="span")
    encoder([whole, Request(text)])
    assert not encoder.cut_spans
    assert not caplog.text
    encoder([whole, cut, cut])
    encoder([cut])
    assert encoder.cut_spans == {cut}
    (said,) = [record.getMessage() for record in caplog.records]
    assert "1 of 2 spans" in said
    assert "model.max_length" in said
    # Pooled are the words that are left.
    left = encoder([Request(text, (8, 18), pooling="span")])
    torch.testing.assert_close(encoder([cut]), left)


@pytest.mark.parametrize("span", ["not there", (5, 5), (-1, 3), (0, 1000)])
def test_spans_that_are_none_are_refused(tiny: Encoder, span: str | tuple[int, int]) -> None:
    with pytest.raises(UserError, match="span"):
        tiny.encode([TEXTS[0]], [span])


class Table(list[str]):
    """As pandas' data frames, whose elements are the names of their columns."""

    columns = ("text",)


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        (("a bare text",), {}, "list"),
        ((TEXTS, ["ice"]), {}, "4 texts but 1 spans"),
        ((TEXTS, "ice"), {}, "spans"),
        (([TEXTS],), {}, "text 0.*list"),
        (({"text": "a"},), {}, "texts.*dict"),
        ((Table(["text"]),), {}, "texts.*Table"),
        ((TEXTS,), {"role": "querry"}, "role.*'query'"),
        ((TEXTS,), {"instruction": ["one", "each"]}, "instruction.*list"),
        ((TEXTS,), {"batch_size": 0}, "batch_size.*0"),
        ((TEXTS[:1], [3]), {}, "span 0.*int"),
        ((TEXTS[:1], [("broke", "ice")]), {}, "span 0.*tuple"),
        ((TEXTS[:1], [(0, 2.5)]), {}, "span 0.*2.5"),
    ],
)
def test_encode_names_the_argument_that_is_wrong(
    tiny: Encoder, arguments: tuple[Any, ...], options: dict[str, Any], named: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=named):
        tiny.encode(*arguments, **options)
    with pytest.raises(TypeError, match="first"):
        tiny.similarity(TEXTS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="32 and of 8"):
        tiny.similarity(torch.zeros(2, 32), torch.zeros(1, 8))


def test_batches_arrays_and_similarity(tiny: Encoder) -> None:
    embeddings = tiny.encode(TEXTS)
    assert tiny.encode([]).shape == (0, 32)
    passes: list[int] = []
    tiny([Request(text) for text in TEXTS], passes.append, batch_size=3)
    assert passes == [3, 1]
    array = tiny.encode(iter(TEXTS), batch_size=np.int64(1), convert_to_numpy=True)  # type: ignore[call-overload]
    assert array.dtype == "float32"
    torch.testing.assert_close(torch.from_numpy(array), embeddings, atol=1e-6, rtol=0)
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    torch.testing.assert_close(tiny.similarity(array, embeddings[0]), unit @ unit[:1].T)
    torch.testing.assert_close(tiny.similarity(embeddings), unit @ unit.T)


def test_a_bar_on_a_terminal_alone(
    tiny: Encoder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.encode(TEXTS)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    tiny.encode(TEXTS)
    assert "embedding" in capsys.readouterr().err
    tiny.encode(TEXTS, show_progress_bar=False)
    assert capsys.readouterr().err == ""


def test_models_by_the_names_of_the_command_line(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the options of `conf/model/`, where none are given, also where a folder has the name."""
    settings = model_settings("e5_base", {"query_prompt": None, "pooling": "cls"})
    assert (settings.path, settings.pooling, settings.query_prompt) == ("intfloat/e5-base-v2", "cls", "")
    assert Encoder.from_pretrained("minilm", device="cpu").prompts == Prompts()
    with pytest.raises(UserError, match="did you mean e5_base"):
        Encoder.from_pretrained("e5-base")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "minilm").symlink_to(tiny_path)
    assert Encoder.from_pretrained("minilm", device="cpu").dimension == 384
    assert "./minilm" in caplog.text
    assert Encoder.from_pretrained("./minilm", device="cpu").dimension == 32
    assert Encoder.from_pretrained(Path("minilm"), device="cpu").dimension == 32


def test_encode_leaves_training_mode_as_it_was(tiny: Encoder) -> None:
    tiny.train()
    a, b = tiny.encode(TEXTS), tiny.encode(TEXTS)
    assert torch.equal(a, b)  # no dropout
    assert tiny.training
    tiny.eval()
    tiny.encode(TEXTS)
    assert not tiny.training


def test_saved_folder_is_plain_sentence_transformers_and_keeps_the_prompts(
    tiny: Encoder, tmp_path: Path
) -> None:
    tiny.prompts = Prompts(query="query: ", document="passage: ", instruction="{instruction} | {query}")
    tiny.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "model.safetensors").is_file()
    assert not list((tmp_path / "saved").rglob("*.bin"))
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    theirs = plain.encode_query(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(tiny.encode(TEXTS, role="query"), theirs, atol=1e-6, rtol=0)
    again = Encoder.from_pretrained(tmp_path / "saved", device="cpu")
    assert again.prompts == tiny.prompts
    torch.testing.assert_close(again.encode(TEXTS, role="query"), theirs, atol=1e-6, rtol=0)


def test_prompts_of_the_checkpoint_are_read_and_kept(tiny: Encoder, tmp_path: Path) -> None:
    """`passage` serves as the document prompt, as in sentence-transformers; a default prompt stays."""
    tiny.model.prompts = {"query": "query: ", "passage": "passage: ", "s2s": "same: "}
    tiny.model.default_prompt_name = "s2s"
    tiny.model.save_pretrained(str(tmp_path / "base"), create_model_card=False)
    encoder = Encoder.from_pretrained(tmp_path / "base", device="cpu")
    assert (encoder.prompts.query, encoder.prompts.document) == ("query: ", "passage: ")
    encoder.save(tmp_path / "saved")
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert plain.prompts["s2s"] == "same: "
    theirs = plain.encode_document(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(encoder.encode(TEXTS), theirs, atol=1e-6, rtol=0)


def test_more_tokens_than_positions_are_refused(tiny_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.max_length=1000: .* has 64 positions"):
        Encoder.from_pretrained(tiny_path, device="cpu", max_length=1000)


def test_weights_are_loaded_in_float32_whatever_the_file_holds(tiny: Encoder, tmp_path: Path) -> None:
    tiny.model.half()
    tiny.save(tmp_path / "half")
    again = Encoder.from_pretrained(tmp_path / "half", device="cpu")
    assert {p.dtype for p in again.parameters()} == {torch.float32}


def test_pooling_of_the_checkpoint_is_respected_and_can_be_replaced(tiny_path: Path) -> None:
    cls = Encoder.from_pretrained(tiny_path, device="cpu", pooling="cls")
    mean = Encoder.from_pretrained(tiny_path, device="cpu")
    assert not torch.allclose(cls.encode(TEXTS), mean.encode(TEXTS), atol=1e-3)
    # The span is late chunking in either case.
    a = torch.nn.functional.normalize(cls.encode(TEXTS, SPANS), dim=1)
    torch.testing.assert_close(a, mean.encode(TEXTS, SPANS), atol=1e-6, rtol=0)


def test_a_mean_of_layers_is_not_trained_and_takes_those_there_are(tiny_path: Path) -> None:
    last2 = Encoder.from_pretrained(tiny_path, device="cpu", pooling="last2")
    assert [n for n, p in last2.model.named_parameters() if not p.requires_grad and "layer_weights" in n]
    with pytest.raises(UserError, match=r"model\.pooling=last3: the model has 2 layers"):
        Encoder.from_pretrained(tiny_path, device="cpu", pooling="last3")


def test_plain_transformers_folder_is_pooled_by_mean(tiny_path: Path) -> None:
    bert = Encoder.from_pretrained(tiny_path.parent / "bert", device="cpu")
    ours = Encoder.from_pretrained(tiny_path, device="cpu").encode(TEXTS)
    theirs = torch.nn.functional.normalize(bert.encode(TEXTS), dim=1)
    torch.testing.assert_close(theirs, ours, atol=1e-6, rtol=0)


def test_wrong_model_paths_are_explained(tmp_path: Path, tiny_path: Path) -> None:
    with pytest.raises(UserError, match=r"modules\.json"):
        Encoder.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="not a folder"):
        Encoder.from_pretrained(tmp_path / "missing")
    with pytest.raises(UserError, match="Hub did not give it"):
        Encoder.from_pretrained("nobody/no-such-model")
    broken = tmp_path / "broken"
    shutil.copytree(tiny_path, broken)
    (broken / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(UserError, match=r"broken: SafetensorError: .*header"):
        Encoder.from_pretrained(broken)


def test_a_mask_of_another_model_is_refused(tiny: Encoder) -> None:
    check_special_token(tiny.model.tokenizer, "[MASK]", "mask")
    check_special_token(tiny.model.tokenizer, "something", "mask")
    with pytest.raises(UserError, match=r"its own is objective\.mask='\[MASK\]'"):
        check_special_token(tiny.model.tokenizer, "<mask>", "mask")
    with pytest.raises(UserError, match=r"its own is objective\.idiolink\.mask='\[MASK\]'"):
        check_special_token(tiny.model.tokenizer, "<mask>", "idiolink.mask")
