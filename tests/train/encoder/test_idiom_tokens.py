"""Idiom tokens: replacing, spans, embeddings, saving, tokenizers of three kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import BertModel, PreTrainedTokenizerFast

from tests.tiny_models import tiny_transformer
from train.encoder.encoder import Encoder
from train.encoder.idiom_tokens import FILE, IdiomTokens, token_name
from train.encoder.reading import Prompts
from train.errors import UserError
from train.requests import Request

IDIOMS = ["home run", "spill the beans", "alto-falante"]
TEXT = "He hit a Home Run."
TOKENS = IdiomTokens({"IDhomerunID": ["home run"], "IDspillthebeansID": ["spill the beans"]})


@pytest.fixture
def encoder(tiny: Encoder) -> Encoder:
    tiny.add_idiom_tokens(IDIOMS)
    return tiny


def rows(encoder: Encoder) -> torch.Tensor:
    """The embedding matrix."""
    transformer: Any = encoder.model[0]
    matrix: torch.Tensor = transformer.auto_model.get_input_embeddings().weight.detach()
    return matrix


def row(encoder: Encoder, token: str) -> torch.Tensor:
    return rows(encoder)[encoder.model.tokenizer.convert_tokens_to_ids(token)]


@pytest.mark.parametrize(
    ("expression", "token"),
    [
        ("home run", "IDhomerunID"),
        ("Dutch courage", "IDdutchcourageID"),
        ("alto-falante", "IDaltofalanteID"),
        ("alto falante", "IDaltofalanteID"),
        ("má-fé", "IDmáféID"),
        ("devil’s advocate", "IDdevilsadvocateID"),
        ("what's up?", "IDwhatsupID"),
        ("C", "IDcID"),
        ("C++", "IDcx2bx2bID"),
        ("C#", "IDcx23ID"),
        (".NET", "IDx2enetID"),
        ("...and so on", "IDandsoonID"),
    ],
)
def test_names(expression: str, token: str) -> None:
    assert token_name(expression) == token


def test_texts_are_read_with_tokens_for_their_expressions() -> None:
    assert TOKENS.replaced(TEXT)[0] == "He hit a IDhomerunID."
    text = "Home runs? She spilled the beans on two home-runs!"
    assert TOKENS.replaced(text)[0] == "IDhomerunID? She IDspillthebeansID on two IDhomerunID!"
    assert TOKENS.replaced("Nothing of the kind.")[0] == "Nothing of the kind."
    assert TOKENS.replaced("")[0] == ""


@pytest.mark.parametrize(
    ("span", "words"),
    [
        ("He", "He"),
        ("two", "two"),
        ("spilled the beans", "IDspillthebeansID"),
        ("beans", "IDspillthebeansID"),
        ("the", "IDspillthebeansID"),
        ("spilled the beans on", "IDspillthebeansID on"),
        ("He spilled", "He IDspillthebeansID"),
        ("beans on two home", "IDspillthebeansID on two IDhomerunID"),
        ("He spilled the beans on two home runs.", "He IDspillthebeansID on two IDhomerunID."),
        (".", "."),
    ],
)
def test_a_span_keeps_its_words_and_takes_in_whole_tokens(span: str, words: str) -> None:
    text = "He spilled the beans on two home runs."
    start = text.index(span)
    new, moved = TOKENS.replaced(text, (start, start + len(span)))
    assert moved is not None
    assert new[slice(*moved)] == words


RIDE = "take someone for a ride"
RIDE_TOKEN = "IDtakesomeoneforarideID"


@pytest.mark.parametrize(
    ("span", "words"),
    [
        ("They", "They"),
        ("took the voters for a ride", f"{RIDE_TOKEN} the voters"),
        ("took", RIDE_TOKEN),
        ("took the", f"{RIDE_TOKEN} the"),
        ("the voters", "the voters"),
        ("voters for", f"{RIDE_TOKEN} the voters"),
        ("for a ride", RIDE_TOKEN),
        ("a", RIDE_TOKEN),
        ("a ride again", f"{RIDE_TOKEN} the voters again"),
        ("They took the voters", f"They {RIDE_TOKEN} the voters"),
        ("again", "again"),
        ("again.", "again."),
    ],
)
def test_what_stands_for_a_placeholder_stays_and_spans_with_it(span: str, words: str) -> None:
    tokens = IdiomTokens({RIDE_TOKEN: [RIDE]})
    text = "They took the voters for a ride again."
    start = text.index(f" {span}") + 1 if f" {span}" in text else 0
    new, moved = tokens.replaced(text, (start, start + len(span)))
    assert new == f"They {RIDE_TOKEN} the voters again."
    assert moved is not None
    assert new[slice(*moved)] == words


def test_expressions_within_a_placeholder_have_their_tokens_too() -> None:
    tokens = IdiomTokens({RIDE_TOKEN: [RIDE], **TOKENS.expressions})
    text = "He took two home runs for a ride, then home runs."
    new, moved = tokens.replaced(text, (text.rindex("home"), text.rindex(".")))
    assert new == f"He {RIDE_TOKEN} two IDhomerunID, then IDhomerunID."
    assert moved is not None
    assert new[slice(*moved)] == "IDhomerunID"


def test_spans_move_with_prompt_and_replacing(encoder: Encoder) -> None:
    """The instruction quotes the span; the query's own is meant, and both are read as the token."""
    encoder.prompts = Prompts(query="query: ", instruction="Find '{instruction}'\n{query} !")
    text = "A home run is a home run they say."
    second = text.rindex("home"), text.rindex("home") + len("home run")
    request = Request(text, second, role="query", instruction="home runs", pooling="span")
    read = "Find 'IDhomerunID'\nA IDhomerunID is a IDhomerunID they say. !"
    where = read.rindex("IDhomerunID")
    assert encoder.idiom_tokens is not None
    assert encoder.idiom_tokens.replaced(*encoder.prompts.render(request)) == (read, (where, where + 11))
    hidden = states(encoder, read)
    expected = torch.nn.functional.normalize(hidden[token_at(encoder, read, where)], dim=0)
    torch.testing.assert_close(encoder([request])[0], expected, atol=1e-6, rtol=0)


def states(encoder: Encoder, text: str) -> torch.Tensor:
    """The last layer's token embeddings of a text that is read as it stands."""
    transformer: Any = encoder.model[0]
    with torch.no_grad():
        encoded = encoder.model.tokenizer(text, return_tensors="pt")
        hidden: torch.Tensor = transformer.auto_model(**encoded).last_hidden_state[0]
    return hidden


def token_at(encoder: Encoder, text: str, start: int) -> int:
    offsets = encoder.model.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    return next(i for i, (s, e) in enumerate(offsets) if s == start < e)


@pytest.mark.parametrize(
    ("span", "first", "last"),
    [("Home Run", 4, 5), ("Run", 4, 5), ((11, 15), 4, 5), ("hit a", 2, 4), ("a Home", 3, 5)],
)
def test_a_span_in_an_expression_is_the_token(encoder: Encoder, span: Any, first: int, last: int) -> None:
    hidden = states(encoder, "He hit a IDhomerunID.")
    assert len(hidden) == 7  # [CLS] he hit a IDhomerunID . [SEP]
    expected = torch.nn.functional.normalize(hidden[first:last].mean(0), dim=0)
    torch.testing.assert_close(encoder.encode([TEXT], [span])[0], expected, atol=1e-6, rtol=0)


def test_new_embeddings_are_the_mean_of_the_word_pieces(tiny: Encoder) -> None:
    before = rows(tiny).clone()
    tiny.add_idiom_tokens(["home run", "hold the line"])
    after = rows(tiny)
    assert torch.equal(after[: len(before)], before)
    assert len(after) == len(before) + 2
    for expression in ("home run", "hold the line"):
        ids = [tiny.model.tokenizer.convert_tokens_to_ids(word) for word in expression.split()]
        total = sum(before[i] for i in ids)
        torch.testing.assert_close(row(tiny, token_name(expression)), total / len(ids))


def test_new_embeddings_drawn_at_random(tiny_path: Path) -> None:
    """Normal, as wide as the checkpoint's own start was; the seed's alone."""
    drawn = []
    for seed in (1, 1, 2):
        encoder = Encoder.from_pretrained(tiny_path, device="cpu")
        before = rows(encoder).clone()
        encoder.add_idiom_tokens([f"home {chr(97 + n)}" for n in range(26)], start="random", seed=seed)
        torch.testing.assert_close(rows(encoder)[: len(before)], before, rtol=0, atol=0)
        drawn.append(rows(encoder)[len(before) :])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    transformer: Any = encoder.model[0]
    assert drawn[0].std().item() == pytest.approx(transformer.auto_model.config.initializer_range, rel=0.1)
    assert abs(drawn[0].mean().item()) < 0.1 * drawn[0].std().item()


def test_variants_share_a_token_and_what_is_there_stays(encoder: Encoder) -> None:
    with torch.no_grad():
        row(encoder, "IDhomerunID").fill_(0.5)
    size = len(rows(encoder))
    encoder.add_idiom_tokens(["Home-Run", "alto falante", "home run", "big fish", "má-fé", "ma fe"])
    assert encoder.idiom_tokens is not None
    assert encoder.idiom_tokens.expressions == {
        "IDhomerunID": ["home run", "Home-Run"],
        "IDspillthebeansID": ["spill the beans"],
        "IDaltofalanteID": ["alto-falante", "alto falante"],
        "IDbigfishID": ["big fish"],
        "IDmáféID": ["má-fé", "ma fe"],  # this tokenizer drops accents
    }
    assert len(rows(encoder)) == size + 2
    assert torch.all(row(encoder, "IDhomerunID") == 0.5)


def test_what_is_read_alike_goes_through_the_model_once(encoder: Encoder) -> None:
    seen: list[int] = []
    requests = [
        Request("A home run."),
        Request("A Home-Run."),
        Request("A home run.", (2, 6), pooling="span"),
    ]
    embeddings = encoder(requests, on_progress=seen.append)
    assert sum(seen) == 1
    assert torch.equal(embeddings[0], embeddings[1])


def test_replacing_can_be_switched_and_the_checkpoint_keeps_the_choice(
    encoder: Encoder, tiny_path: Path, tmp_path: Path
) -> None:
    replaced, plain = encoder.encode([TEXT]), Encoder.from_pretrained(tiny_path, device="cpu").encode([TEXT])
    encoder.save(tmp_path / "on")
    off = Encoder.from_pretrained(tmp_path / "on", device="cpu", replace_expressions=False)
    torch.testing.assert_close(off.encode([TEXT]), plain, atol=1e-6, rtol=0)
    assert not torch.allclose(replaced, plain, atol=1e-3)
    off.save(tmp_path / "off")
    for option, expected in ((None, plain), (True, replaced)):
        again = Encoder.from_pretrained(tmp_path / "off", device="cpu", replace_expressions=option)
        torch.testing.assert_close(again.encode([TEXT]), expected, atol=1e-6, rtol=0)


def test_without_idiom_tokens_nothing_is_different(tiny: Encoder, tiny_path: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("of another model")
    tiny.save(tmp_path)
    assert not (tmp_path / FILE).exists()
    with pytest.raises(UserError, match=r"replace_expressions=true: .* has no idiom tokens"):
        Encoder.from_pretrained(tiny_path, device="cpu", replace_expressions=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"format": 1', '"format": 9'),
        lambda text: text.replace("IDhomerunID", "IDhomeID"),
        lambda text: text.replace("home run", "…"),
    ],
)
def test_a_damaged_file_is_named(encoder: Encoder, tmp_path: Path, damage: Callable[[str], str]) -> None:
    encoder.save(tmp_path)
    path = tmp_path / FILE
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(UserError) as error:
        Encoder.from_pretrained(tmp_path, device="cpu")
    assert str(path) in str(error.value)


def test_what_was_not_found_is_counted_and_named() -> None:
    sentences = [
        ("Home-Run", "A home run."),
        ("home run", "He ran home."),
        ("home run", "He is at home."),
        ("big fish", "A big fish."),
    ]
    assert TOKENS.describe(sentences) == [
        "idiom tokens: 2 expressions have 2 tokens; of 3 training sentences with one of them it was not "
        "found in 2: home run (2)",
        "idiom tokens: in no training sentence, so not trained: spill the beans",
    ]


# ---------------------------------------------------------------- other tokenizers

_CORPUS = ["He hit a home run and spilled the beans.", "Dois alto-falantes de má-fé.", "Air in the bagpipe."]


def _byte_level() -> Tokenizer:
    """As RoBERTa's: cased, a space belongs to the word after it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        _CORPUS,
        trainers.BpeTrainer(vocab_size=330, special_tokens=["<pad>", "<unk>"], initial_alphabet=alphabet),
    )
    return tokenizer


def _sentence_piece() -> Tokenizer:
    """As XLM-R's: unigrams, a mark for the space, compatibility normalisation."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        _CORPUS,
        trainers.UnigramTrainer(vocab_size=90, special_tokens=["<pad>", "<unk>"], unk_token="<unk>"),
    )
    return tokenizer


def _lower_casing() -> Tokenizer:
    """As an uncased sentence-piece tokenizer's."""
    tokenizer = _sentence_piece()
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    return tokenizer


OTHERS = [_byte_level, _sentence_piece, _lower_casing]


def made(make: Callable[[], Tokenizer], folder: Path) -> Encoder:
    wrapped = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=make(), pad_token="<pad>", unk_token="<unk>", model_max_length=64
    )
    # Rows that no token has, as many models have them.
    transformer = tiny_transformer(folder, BertModel, wrapped, size=16, num_layers=1, num_free_rows=5)
    return Encoder(SentenceTransformer(modules=[transformer, Pooling(16), Normalize()], device="cpu"))


@pytest.mark.parametrize("make", OTHERS)
def test_tokens_in_other_tokenizers(make: Callable[[], Tokenizer], tmp_path: Path) -> None:
    other = made(make, tmp_path / "bert")
    pieces = other.model.tokenizer("home run", add_special_tokens=False)["input_ids"]
    mean = rows(other)[pieces].mean(0)
    many = [f"idiom number {'x' * i}" for i in range(1, 8)]  # more than there are free rows
    other.add_idiom_tokens([*IDIOMS, "má-fé", *many])
    torch.testing.assert_close(row(other, "IDhomerunID"), mean)
    tokenizer = other.model.tokenizer
    id_ = tokenizer.convert_tokens_to_ids("IDhomerunID")
    read = 'IDhomerunID: a (IDhomerunID), "IDhomerunID" to hit IDhomerunID.'
    encoded = tokenizer(read, return_offsets_mapping=True)
    where = [o for i, o in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True) if i == id_]
    assert [read[s:e].strip() for s, e in where] == ["IDhomerunID"] * 4
    # No piece that is a space alone before the token.
    assert len(tokenizer("a IDmáféID")["input_ids"]) == len(tokenizer("a")["input_ids"]) + 1

    span = other.encode([TEXT], ["Run"])[0]
    hidden = states(other, "He hit a IDhomerunID.")
    at = tokenizer("He hit a IDhomerunID.")["input_ids"].index(id_)
    torch.testing.assert_close(span, torch.nn.functional.normalize(hidden[at], dim=0), atol=1e-6, rtol=0)
    before = other.encode([TEXT], ["hit a"])[0]
    assert not torch.allclose(before, other.encode([TEXT], ["hit a Home"])[0], atol=1e-4)


# ---------------------------------------------------------------- rules of a saved tokenizer

SENTENCES = [
    "He hit a Home-Run, then two home runs (home run).",
    "Nobody had spilled the beans about the loud alto-falantes.",
    "SPILL THE BEANS! In the homerun nobody spills all the beans, and was it MÁ FÉ?",
    "They TOOK my older brother for a ride.",
    "Take the home run for a ride, and you lose your temper!",
    "He lost the king's temper. Take it, then go for a ride.",
]


@pytest.mark.parametrize("make", [None, *OTHERS])
def test_any_library_reads_a_saved_model_as_it_learnt_to(
    make: Callable[[], Tokenizer] | None, tiny: Encoder, tmp_path: Path
) -> None:
    """Expressions inflected, hyphenated and in capitals, by plain sentence-transformers; also saved again."""
    model = tiny if make is None else made(make, tmp_path / "bert")
    model.add_idiom_tokens([*IDIOMS, "má-fé", RIDE, "lose one's temper"])
    with torch.no_grad():
        row(model, "IDhomerunID").add_(0.3)
    model.eval()
    spans = model.encode(SENTENCES[:2], ["Home-Run", "beans"])
    model.save(tmp_path / "first")
    again = Encoder.from_pretrained(tmp_path / "first", device="cpu")
    again.save(tmp_path / "second")
    assert "idhomerunid" not in "".join(again.model.tokenizer.tokenize(SENTENCES[0])).lower()
    for name in ("first", "second"):
        plain = SentenceTransformer(str(tmp_path / name), device="cpu")
        assert RIDE_TOKEN.lower() in "".join(plain.tokenizer.tokenize(SENTENCES[3])).lower()
        loaded = Encoder.from_pretrained(tmp_path / name, device="cpu")
        ours = loaded.encode(SENTENCES)
        torch.testing.assert_close(plain.encode(SENTENCES, convert_to_tensor=True), ours, atol=1e-6, rtol=0)
        torch.testing.assert_close(model.encode(SENTENCES), ours, atol=1e-6, rtol=0)
        torch.testing.assert_close(
            loaded.encode(SENTENCES[:2], ["Home-Run", "beans"]), spans, atol=1e-6, rtol=0
        )
    for name in (FILE, "tokenizer.json") if make is None else (FILE,):
        assert (tmp_path / "second" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()


def test_where_texts_stay_as_they_are_no_rule_replaces_in_them(
    encoder: Encoder, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    encoder.save(tmp_path / "with")
    loaded = Encoder.from_pretrained(tmp_path / "with", device="cpu", replace_expressions=False)
    loaded.save(tmp_path / "without")
    assert not caplog.text
    monkeypatch.setattr("train.encoder.saved_expressions.reads_alike", lambda *_: False)
    encoder.save(tmp_path / "impossible")
    assert "does not put idiom tokens into texts by itself" in caplog.text
    for name in ("without", "impossible"):
        plain = SentenceTransformer(str(tmp_path / name), device="cpu")
        assert "idhomerunid" not in plain.tokenizer.tokenize(SENTENCES[0])
        assert "idhomerunid" in plain.tokenizer.tokenize("IDhomerunID")
    expected, ours = (Encoder.from_pretrained(tmp_path / n, device="cpu") for n in ("with", "impossible"))
    torch.testing.assert_close(ours.encode(SENTENCES), expected.encode(SENTENCES), atol=0, rtol=0)
