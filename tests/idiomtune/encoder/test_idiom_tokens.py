"""Idiom tokens: replacing, spans, embeddings, saving, tokenizers of three kinds."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, normalizers
from torch.nn.functional import normalize
from torch.testing import assert_close

from idiomtune import Encoder
from idiomtune.encoder.idiom_tokens import FILE, IdiomTokens, token_name
from idiomtune.encoder.reading import Prompts
from idiomtune.errors import UserError
from idiomtune.requests import EmbeddingRequest
from tests.tiny_families import FAMILIES, tiny_checkpoint

IDIOMS = ["home run", "spill the beans", "alto-falante"]
TEXT = "He hit a Home Run."
RUN, BEANS = "IDhomerunID", "IDspillthebeansID"
RIDE, RIDE_TOKEN = "take someone for a ride", "IDtakesomeoneforarideID"
TOKENS = IdiomTokens({RUN: ["home run"], BEANS: ["spill the beans"]})
ALL_TOKENS = IdiomTokens({RIDE_TOKEN: [RIDE], **TOKENS.expressions})


@pytest.fixture
def encoder(tiny: Encoder) -> Encoder:
    tiny.add_idiom_tokens(IDIOMS)
    return tiny


def rows(encoder: Encoder) -> torch.Tensor:
    """The embedding matrix."""
    transformer: Any = encoder.transformer
    matrix: torch.Tensor = transformer.get_input_embeddings().weight.detach()
    return matrix


def row(encoder: Encoder, token: str) -> torch.Tensor:
    return rows(encoder)[encoder.model.tokenizer.convert_tokens_to_ids(token)]


def test_names() -> None:
    names = {"má-fé": "máfé", "What’s up?": "whatsup", "C++": "cx2bx2b", ".NET": "x2enet", "...so": "so"}
    for expression, name in names.items():
        assert token_name(expression) == f"ID{name}ID"
    with pytest.raises(UserError, match=r"model\.idiom_tokens"):
        token_name("+")


BEANS_TEXT = "He spilled the beans on two home runs."
RIDE_TEXT = "They took the voters for a ride again."


def test_a_span_keeps_its_words_and_takes_in_whole_tokens() -> None:
    """What stands for a placeholder stays, and spans with it."""
    for text, span, read in (
        (BEANS_TEXT, "spilled the beans on", f"{BEANS} on"),
        (BEANS_TEXT, "beans on two home", f"{BEANS} on two {RUN}"),
        (RIDE_TEXT, "took the voters for a ride", f"{RIDE_TOKEN} the voters"),
        (RIDE_TEXT, "the voters", "the voters"),
        (RIDE_TEXT, "voters for", f"{RIDE_TOKEN} the voters"),
        (RIDE_TEXT, "a ride again", f"{RIDE_TOKEN} the voters again"),
        # Expressions within a placeholder have their tokens too.
        ("He took two home runs for a ride, then sat.", "two home", f"two {RUN}"),
    ):
        start = text.index(f" {span}") + 1 if f" {span}" in text else text.index(span)
        new, moved = ALL_TOKENS.replace_expressions(text, (start, start + len(span)))
        assert moved is not None
        assert new[slice(*moved)] == read
        assert new == ALL_TOKENS.replace_expressions(text)[0]


def states(encoder: Encoder, text: str) -> torch.Tensor:
    """The last layer's token embeddings of a text that is read as it stands."""
    with torch.no_grad():
        return encoder.embed_tokens([encoder.model.tokenizer(text)["input_ids"]])[0]


def test_spans_move_with_prompt_and_replacing(encoder: Encoder) -> None:
    """The instruction quotes the span; the query's own is meant, and both are read as the token."""
    encoder.prompts = Prompts(query="query: ", instruction="Find '{instruction}'\n{query} !")
    text = "A home run is a home run they say."
    second = text.rindex("home"), text.rindex("home") + len("home run")
    request = EmbeddingRequest(text, second, role="query", instruction="home runs", pooling="span")
    read = f"Find '{RUN}'\nA {RUN} is a {RUN} they say. !"
    where = read.rindex(RUN)
    token = encoder.model.tokenizer(read).char_to_token(where)
    assert_close(encoder([request])[0], normalize(states(encoder, read)[token], dim=0), atol=1e-6, rtol=0)


def test_new_embeddings_drawn_at_random(tiny: Encoder) -> None:
    """Normal, as wide as the checkpoint's own start was; the seed's alone."""
    before, twin = rows(tiny).clone(), deepcopy(tiny)
    for encoder in (tiny, twin):
        names = [f"home {chr(97 + n)}" for n in range(26)]
        encoder.add_idiom_tokens(names, start="random", seed=1 + (encoder is twin))
    assert torch.equal(rows(tiny)[: len(before)], before)
    drawn, other_seed = rows(tiny)[len(before) :], rows(twin)[len(before) :]
    assert not torch.equal(drawn, other_seed)
    transformer: Any = tiny.transformer
    assert drawn.std().item() == pytest.approx(transformer.config.initializer_range, rel=0.1)


def test_variants_share_a_token_and_what_is_there_stays(encoder: Encoder) -> None:
    """What is read alike goes through the model once."""
    with torch.no_grad():
        row(encoder, RUN).fill_(0.5)
    size = len(rows(encoder))
    encoder.add_idiom_tokens(["Home-Run", "home run", "big fish", "má-fé", "ma fe"])
    assert encoder.idiom_tokens is not None
    shared = {RUN: ["home run", "Home-Run"], "IDmáféID": ["má-fé", "ma fe"]}  # this tokenizer drops accents
    for token, names in (shared | {BEANS: ["spill the beans"], "IDbigfishID": ["big fish"]}).items():
        assert encoder.idiom_tokens.expressions[token] == names
    assert len(rows(encoder)) == size + 2
    assert torch.all(row(encoder, RUN) == 0.5)
    seen: list[int] = []
    span = EmbeddingRequest("A home run.", (2, 6), pooling="span")
    embeddings = encoder(
        [EmbeddingRequest("A home run."), EmbeddingRequest("A Home-Run."), span], on_progress=seen.append
    )
    assert sum(seen) == 1
    assert torch.equal(embeddings[0], embeddings[1])


def test_replacing_can_be_switched_and_the_checkpoint_keeps_the_choice(
    encoder: Encoder, tiny_path: Path, tmp_path: Path
) -> None:
    """Where texts stay as they are, no rule of the saved tokenizer replaces in them."""
    replaced, plain = encoder.encode([TEXT]), Encoder(tiny_path, device="cpu").encode([TEXT])
    encoder.save(tmp_path / "on")
    off = Encoder(tmp_path / "on", device="cpu", replace_expressions=False)
    assert_close(off.encode([TEXT]), plain, atol=1e-6, rtol=0)
    assert not torch.allclose(replaced, plain, atol=1e-3)
    off.save(tmp_path / "off")
    tokenizer = SentenceTransformer(str(tmp_path / "off"), device="cpu").tokenizer
    assert [tokenizer.tokenize(text).count("idhomerunid") for text in (TEXT, RUN)] == [0, 1]
    again = Encoder(tmp_path / "off", device="cpu", replace_expressions=True)
    assert_close(again.encode([TEXT]), replaced, atol=1e-6, rtol=0)
    with pytest.raises(UserError, match=r"replace_expressions=true"):
        Encoder(tiny_path, device="cpu", replace_expressions=True)


def uncased() -> Tokenizer:
    """XLM-R's in lower case, with its compatibility normalisation."""
    tokenizer = FAMILIES["xlm_roberta"].tokenizer()
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    return tokenizer


# RoBERTa's is cased, and a space belongs to the word after it; XLM-R's has a mark for the space. Embeddings
# have rows that no token has, as many models have them.
OTHERS = {
    "bytes": FAMILIES["roberta"],
    "uncased": replace(FAMILIES["xlm_roberta"], tokenizer=uncased, config={"vocab_size": 155}),
}


def other(name: str, folder: Path) -> Encoder:
    return Encoder(tiny_checkpoint(OTHERS[name], folder), device="cpu", pooling="mean")


@pytest.mark.parametrize("name", OTHERS)
def test_tokens_in_other_tokenizers(name: str, tmp_path: Path) -> None:
    encoder = other(name, tmp_path / "model")
    tokenizer = encoder.model.tokenizer
    pieces = tokenizer("home run", add_special_tokens=False)["input_ids"]
    before, num_tokens = rows(encoder).clone(), len(tokenizer)
    many = [f"idiom number {'x' * i}" for i in range(1, 8)]  # more than there are free rows
    encoder.add_idiom_tokens([*IDIOMS, "má-fé", *many])
    assert_close(row(encoder, RUN), before[pieces].mean(0))
    assert torch.equal(rows(encoder)[:num_tokens], before[:num_tokens])
    id_ = tokenizer.convert_tokens_to_ids(RUN)
    read = f'{RUN}: a ({RUN}), "{RUN}" to hit {RUN}.'
    assert tokenizer(read)["input_ids"].count(id_) == 4
    # No piece that is a space alone before the token.
    assert len(tokenizer("a IDmáféID")["input_ids"]) == len(tokenizer("a")["input_ids"]) + 1


SENTENCES = [
    "He hit a Home-Run, then two home runs (home run).",
    "Nobody had spilled the beans about the loud alto-falantes.",
    "SPILL THE BEANS! In the homerun nobody spills all the beans, and was it MÁ FÉ?",
    "They TOOK my older brother for a ride.",
    "Ele perdeu o barco, deu um livro ao pai.",  # forms of a dictionary
    "Take the home run for a ride! He lost the king's temper. Take it, then go for a ride.",
]


FORMS = {"perder o barco": ["perdeu o barco"], "dar something ao pai": ["deu something ao pai"]}


@pytest.mark.parametrize("name", [None, *OTHERS])
def test_any_library_reads_a_saved_model_as_it_learnt_to(
    name: str | None, tiny: Encoder, tmp_path: Path
) -> None:
    """Expressions inflected, hyphenated and in capitals, by plain sentence-transformers; also saved again."""
    model = tiny if name is None else other(name, tmp_path / "model")
    model.add_idiom_tokens([*IDIOMS, "má-fé", RIDE, "lose one's temper", *FORMS], forms=FORMS)
    with torch.no_grad():
        row(model, RUN).add_(0.3)
    model.eval()
    spans = ["Home-Run", "beans"]
    expected, of_spans = model.encode(SENTENCES), model.encode(SENTENCES[:2], spans)
    model.save(tmp_path / "first")
    again = Encoder(tmp_path / "first", device="cpu")
    again.save(tmp_path / "second")
    assert "idhomerunid" not in "".join(again.model.tokenizer.tokenize(SENTENCES[0])).lower()
    assert_close(again.encode(SENTENCES), expected, atol=1e-6, rtol=0)
    assert_close(again.encode(SENTENCES[:2], spans), of_spans, atol=1e-6, rtol=0)
    plain = SentenceTransformer(str(tmp_path / "second"), device="cpu")
    for text, token in ((3, RIDE_TOKEN), (4, "IDperderobarcoID"), (4, "IDdarsomethingaopaiID")):
        assert token.lower() in "".join(plain.tokenizer.tokenize(SENTENCES[text])).lower()
    assert_close(plain.encode(SENTENCES, convert_to_tensor=True), expected, atol=1e-5, rtol=0)
    for file in (FILE, "tokenizer.json") if name is None else (FILE,):
        assert (tmp_path / "second" / file).read_bytes() == (tmp_path / "first" / file).read_bytes()
