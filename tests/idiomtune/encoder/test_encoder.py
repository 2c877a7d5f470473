"""The encoder: pooling, invariances, one pass a text, loading and saving."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch.nn.functional import normalize
from torch.testing import assert_close

from idiomtune import Encoder
from idiomtune.encoder.loading import model_settings
from idiomtune.encoder.reading import Prompts, Tokenizer
from idiomtune.errors import UserError
from idiomtune.requests import EmbeddingRequest, find_span

Log = pytest.LogCaptureFixture
TEXTS = [
    "He broke the ice with a joke about the weather.",
    "The ice broke.",
    "Don't let the cat out of the bag, she said, because nobody else may know about the party yet.",
    "It's raining cats and dogs — bring an umbrella.",
]
SPANS = ["broke the ice", "ice broke", "let the cat out of the bag", "raining cats and dogs"]


def load(path: Path | str, **options: Any) -> Encoder:
    return Encoder.from_pretrained(path, device="cpu", **options)


def test_sentences_are_as_in_sentence_transformers_and_spans_means_of_their_tokens(tiny: Encoder) -> None:
    """By words, of which the first occurrence counts, or by offsets; within a word the pieces touched."""
    odd = ["Un café à São Paulo, naïve façade.", "winter " * 600, "", "See you 🙂👍", "Москва и 北京"]
    theirs = tiny.model.encode([*TEXTS, *odd], convert_to_tensor=True, device="cpu")
    assert_close(tiny.encode([*TEXTS, *odd]), theirs, atol=1e-6, rtol=0)
    texts = [*TEXTS, "The ice was thin ice.", "The ice was thin ice.", "She was unbelievably lucky."]
    spans: list[Any] = [*SPANS, "ice", (17, 20), "believ"]
    rows = tiny.encode(texts, spans)
    for row, text, span in zip(rows, texts, spans, strict=True):
        start, end = (text.index(span), text.index(span) + len(span)) if isinstance(span, str) else span
        read = tiny.model.tokenizer(text, return_offsets_mapping=True)
        inside = [s < e and s < end and e > start for s, e in read["offset_mapping"]]
        hidden = tiny.embed_tokens([read["input_ids"]])[0]
        assert_close(row, normalize(hidden[inside].mean(0), dim=0), atol=1e-6, rtol=0)
    assert not torch.allclose(rows[4], rows[5], atol=1e-3)


def test_embeddings_do_not_depend_on_company_order_or_padding_side(tiny: Encoder) -> None:
    """And each distinct text goes through the model once, whatever is pooled of it."""
    pairs = zip(TEXTS, SPANS, strict=True)
    requests = [EmbeddingRequest(text, find_span(text, span), pooling="span") for text, span in pairs]
    requests += [EmbeddingRequest(text) for text in TEXTS] + [replace(requests[0], span=(0, 2), role="query")]
    seen: list[int] = []
    tiny([*requests, *requests], on_progress=seen.append)
    assert sum(seen) == len(TEXTS)
    with torch.no_grad():
        alone = torch.cat([tiny([request]) for request in requests])
        tiny.model.tokenizer.padding_side = "left"
        for tiny.tokens_per_forward in (16, 10_000):
            assert_close(tiny(requests[::-1]), alone.flip(0), atol=2e-6, rtol=0)


def test_gradients_do_not_depend_on_how_texts_are_cut_into_passes(tiny: Encoder) -> None:
    """Without dropout, the embedding with gradient is the embedding that is scored."""
    tiny.eval()
    requests = [EmbeddingRequest(t) for t in TEXTS] + [
        EmbeddingRequest(t, (0, 4), pooling="span") for t in TEXTS
    ]
    weights = torch.randn(len(requests), 32, generator=torch.Generator().manual_seed(0))
    gradients = []
    for tokens in (8, 10_000):
        tiny.tokens_per_forward = tokens
        tiny.zero_grad()
        embeddings = tiny(requests)
        with torch.no_grad():
            assert torch.equal(embeddings, tiny(requests))
        (embeddings * weights).sum().backward()
        gradients.append([p.grad.clone() for p in tiny.parameters() if p.grad is not None])
    assert len(gradients[0]) > 10
    for a, b in zip(*gradients, strict=True):
        assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_a_span_at_the_truncation_edge_is_what_is_left_of_it(tiny_path: Path, caplog: Log) -> None:
    """Cut through: the words that are left, said once and counted. Cut off: an error that says what to do."""
    encoder = load(tiny_path, max_length=8)  # [CLS], six words, [SEP]
    text = "one two three four five six seven eight nine"
    whole, cut, six = (
        EmbeddingRequest(text, find_span(text, w), pooling="span") for w in (text[:27], "six seven", "six")
    )
    assert encoder.reader.are_truncated([whole, EmbeddingRequest("one two")]) == [True, False]
    assert encoder.reader._replace(limit=None).are_truncated([whole]) == [False]
    encoder([whole, EmbeddingRequest(text)])
    assert not encoder.truncated_spans
    assert not caplog.text
    encoder([whole, cut, cut])
    assert_close(encoder([cut]), encoder([six]))
    assert encoder.truncated_spans == {cut}
    (record,) = caplog.records
    assert all(words in record.getMessage() for words in ("1 of 2 spans", "model.max_length"))
    with pytest.raises(UserError, match=r"model\.max_length"):
        encoder.encode([text], ["nine"])


@pytest.mark.parametrize(
    ("texts", "spans", "named"),
    [
        (TEXTS, ["ice"], "spans: 4 .* 1"),
        *((TEXTS[:1], [span], "spans: span .* text 0") for span in ("none", (5, 5), (0, 1000))),
        (["a\t\u00a0b"], [(1, 3)], "spans: span .* text 0"),  # blanks
    ],
)
def test_encode_names_the_argument_that_is_wrong(tiny: Encoder, texts: Any, spans: Any, named: str) -> None:
    with pytest.raises((TypeError, ValueError, UserError), match=named):
        tiny.encode(texts, spans)


def test_batches_arrays_and_similarity(tiny: Encoder) -> None:
    tiny.train()
    embeddings = tiny.encode(TEXTS)
    assert torch.equal(embeddings, tiny.encode(TEXTS)), "no dropout"
    assert tiny.training
    tiny.eval()
    assert tiny.encode([]).shape == (0, 32)
    passes: list[int] = []
    tiny([EmbeddingRequest(text) for text in TEXTS], passes.append, batch_size=3)
    assert passes == [3, 1]
    array = tiny.encode(iter(TEXTS), batch_size=1, convert_to_numpy=True)
    assert array.dtype == "float32"
    assert_close(torch.from_numpy(array), embeddings, atol=1e-6, rtol=0)
    unit = normalize(embeddings, dim=1)
    assert_close(tiny.similarity(array, embeddings[0]), unit @ unit[:1].T)
    assert_close(tiny.similarity(embeddings), unit @ unit.T)


def test_models_by_the_names_of_the_command_line(tiny_path: Path, in_folder: Path) -> None:
    """With the options of `conf/model/`, where none are given, also where a folder has the name."""
    settings = model_settings("e5_base", {"query_prompt": None, "pooling": "cls"})
    assert (settings.path, settings.pooling, settings.query_prompt) == ("intfloat/e5-base-v2", "cls", "")
    with pytest.raises(UserError, match="e5_base"):
        Encoder.from_pretrained("e5-base")
    (in_folder / "minilm").symlink_to(tiny_path)
    assert model_settings("minilm", {}).path.startswith("package:")
    assert load("./minilm").dimension == load(Path("minilm")).dimension == 32


def test_prompts_of_the_checkpoint_are_read_and_kept(tiny: Encoder, tmp_path: Path) -> None:
    """`passage` serves as the document prompt, as in sentence-transformers; a default prompt stays.

    Weights are loaded in float32, whatever the file holds, and saved as safetensors alone.
    """
    tiny.model.prompts = {"query": "query: ", "passage": "passage: ", "s2s": "same: "}
    tiny.model.default_prompt_name = "s2s"
    tiny.model.half().save_pretrained(str(tmp_path / "base"), create_model_card=False)
    encoder = load(tmp_path / "base")
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}
    assert (encoder.prompts.query, encoder.prompts.document) == ("query: ", "passage: ")
    encoder.prompts = replace(encoder.prompts, instruction="{instruction} | {query}")
    encoder.save(tmp_path / "saved")
    assert [file.name for file in (tmp_path / "saved").rglob("*model.*")] == ["model.safetensors"]
    plain = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert plain.prompts["s2s"] == "same: "
    again = load(tmp_path / "saved")
    assert again.prompts == encoder.prompts
    for role, embed in (("document", plain.encode_document), ("query", plain.encode_query)):
        rows = again.encode(TEXTS, role=role)  # type: ignore[call-overload]
        assert_close(rows, embed(TEXTS, convert_to_tensor=True), atol=1e-6, rtol=0)


def test_pooling_of_the_checkpoint_is_respected_and_can_be_replaced(tiny_path: Path) -> None:
    """A plain transformers folder is pooled by mean. A mean of layers is not trained."""
    mean, cls, bert = load(tiny_path), load(tiny_path, pooling="cls"), load(tiny_path.parent / "bert")
    assert not torch.allclose(cls.encode(TEXTS), mean.encode(TEXTS), atol=1e-3)
    spans = normalize(cls.encode(TEXTS, SPANS), dim=1)
    assert_close(spans, mean.encode(TEXTS, SPANS), atol=1e-6, rtol=0)
    assert_close(normalize(bert.encode(TEXTS), dim=1), mean.encode(TEXTS), atol=1e-6, rtol=0)
    last2 = load(tiny_path, pooling="last2")
    assert [n for n, p in last2.model.named_parameters() if not p.requires_grad and "layer_weights" in n]


def test_a_prompt_is_left_out_of_the_mean_if_the_checkpoint_says_so(tiny: Encoder) -> None:
    """As sentence-transformers leaves it out, with the first special token; of prompts of several lengths."""
    pooling: Any = tiny.model[1]
    pooling.include_prompt = False
    tiny.prompts = Prompts(query="query: ", instruction="{instruction}: {query}")
    asked = [
        EmbeddingRequest(text, role="query", instruction=i) for i in (None, "Find the same") for text in TEXTS
    ]
    prompts = {None: "query: ", "Find the same": "Find the same: "}
    theirs = [tiny.model.encode(r.text, prompt=prompts[r.instruction], convert_to_tensor=True) for r in asked]
    assert_close(tiny(asked), torch.stack(theirs), atol=1e-6, rtol=0)
    assert_close(tiny.encode(TEXTS), tiny.model.encode(TEXTS, convert_to_tensor=True), atol=1e-6, rtol=0)
    (read,) = tiny.reader.read(asked[:1])
    assert tiny.reader.num_skipped(read.tokens, asked[0]) == 3  # [CLS] query :
    tiny.prompts = Prompts(query="the " * 62)  # of 64 tokens two are special ones: none is left for the text
    with pytest.raises(UserError, match=r"model\.max_length"):
        tiny([EmbeddingRequest("ice broke", role="query")])


def test_wrong_models_are_explained(tmp_path: Path, tiny_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", "no/such"):
        with pytest.raises(UserError, match=str(path)):
            load(path)
    for option, value, most in (("max_length", 1000, 64), ("pooling", "last3", 2)):
        with pytest.raises(UserError, match=rf"model\.{option}={value}: .* {most} "):
            load(tiny_path, **{option: value})


def test_a_tokenizer_without_padding_or_offsets_is_refused(tiny: Encoder) -> None:
    tiny.model.tokenizer.pad_token = None
    without: Any = SimpleNamespace(tokenizer=SimpleNamespace(pad_token_id=0))
    for model, file in ((tiny.model, "tokenizer_config.json"), (without, "tokenizer.json")):
        with pytest.raises(UserError, match=file):
            Tokenizer(model)


def test_nothing_is_overwritten_unless_the_user_says_so(tiny: Encoder, tmp_path: Path) -> None:
    (folder := tmp_path / "mine").mkdir()
    (folder / "notes.txt").write_text("mine")
    for place in (folder, folder / "notes.txt"):
        with pytest.raises(UserError, match=place.name):
            tiny.save(place)
    tiny.save(folder, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    assert Encoder.from_pretrained(folder).encode("one").shape == tiny.encode("one").shape
