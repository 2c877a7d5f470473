"""The explorer: words' shares, neighbours, the server, the page without one, models, corpora, mistakes."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch
from starlette.testclient import TestClient
from torch.nn.functional import normalize

from idiomtune import Encoder
from idiomtune.data.idiolink import load_split
from idiomtune.encoder.reading import Prompts
from idiomtune.errors import UserError
from idiomtune.explorer import server
from idiomtune.explorer.models import find_corpus, find_models
from idiomtune.explorer.search import (
    Explorer,
    Passage,
    SearchedModel,
    idiolink_corpus,
    user_corpus,
    word_rows,
)
from idiomtune.explorer.server import page
from idiomtune.glossaries.meanings import GlossaryReader, UsageClassifier
from idiomtune.io.files import fingerprints
from idiomtune.requests import EmbeddingRequest
from tests.benchmarks import idiolink
from tests.own_data import write, write_collection
from tests.planted_runs import plant
from tests.programs import main_of, refused, settings_of

main = main_of("explore")

SENTENCES = ["He broke the ice with a joke.", "The ship broke the ice.", "Nobody spoke.", "ice"]


@pytest.fixture
def explorer(tiny: Encoder, sample_root: Path) -> Explorer:
    corpus = idiolink_corpus(load_split(sample_root, "val"), "the sample, val")
    return Explorer(corpus, [SearchedModel.embedding("tiny", "", tiny, corpus)], 10)


def data_of(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    data: dict[str, Any] = json.loads(text)
    return data


# ------------------------------------------------------------------ words' shares


@pytest.mark.parametrize("how", ["plain", "prompts", "meanings"])
def test_shares_of_words_add_up_to_the_cosine(tiny: Encoder, how: str) -> None:
    if how == "prompts":
        tiny.prompts = Prompts(document="passage: ")
        tiny.model[1].include_prompt = False  # type: ignore[assignment]
    if how == "meanings":
        tiny.meanings = GlossaryReader({"break the ice": ["make people relax"]})
    assert tiny.averages_tokens
    query = normalize(tiny.encode(["They were relaxed."], role="query"), dim=1)[0]
    cosines = normalize(tiny.encode(SENTENCES), dim=1) @ query
    for text, cosine, words in zip(SENTENCES, cosines.tolist(), word_rows(tiny, SENTENCES), strict=True):
        assert sum(words.shares(query)) == pytest.approx(cosine, abs=1e-5)
        read = tiny.reader.read([EmbeddingRequest(text)])[0].text
        assert "".join(words.words) == read
        assert (how == "meanings" and "broke" in text) == ("(make people relax)" in read)
    tiny.meanings = GlossaryReader({}, gate=UsageClassifier([], 0.0, (), ()))
    assert not tiny.averages_tokens  # meanings that are weighed make no sum


def test_without_a_mean_a_share_is_what_leaving_the_word_out_costs(tiny: Encoder) -> None:
    pooling: Any = tiny.model[1]
    pooling.pooling_mode = "cls"
    assert not tiny.averages_tokens
    query = normalize(tiny.encode(["They were relaxed."], role="query"), dim=1)[0]
    (words, _) = word_rows(tiny, [SENTENCES[0], "ice"])
    assert words.words == ["He ", "broke ", "the ", "ice ", "with ", "a ", "joke."]
    whole, without = normalize(tiny.encode([SENTENCES[0], "He broke the with a joke."]), dim=1) @ query
    assert words.shares(query)[3] == pytest.approx((whole - without).item(), abs=1e-5)


# ------------------------------------------------------------------ neighbours


def test_neighbours_and_scores_are_those_of_the_benchmark(explorer: Explorer, sample_root: Path) -> None:
    split = load_split(sample_root, "val")
    benchmark = idiolink([split], "sentence", "span")
    with torch.no_grad():
        result = benchmark.score(explorer.models[0].encoder)
    scores, (answers, _) = explorer.scores(), explorer.answers()
    assert scores is not None
    for mode in ("sentence", "span"):
        records = [row for row in result.per_query if row["mode"] == mode]
        assert [row["ndcg@10"] for row in records] == pytest.approx([v for (v,) in scores[mode]], abs=1e-4)
        for record, answer in zip(records, answers[mode], strict=True):
            rows = answer["models"][0]["rows"]
            assert [split.documents[row["document"]].id for row in rows] == [d["id"] for d in record["top"]]
            assert [row["relevant"] for row in rows] == [d["relevant"] for d in record["top"]]
            assert [row["ranks"][0] for row in rows] == list(range(1, 11))


OWN = """text,span,group,meaning
He broke the ice.,broke the ice,break the ice,idiom
The ship broke the ice.,broke the ice,break the ice,literal
It made them feel at ease.,feel at ease,break the ice,idiom
Nobody got cold feet.,cold feet,cold feet,idiom
Her song broke the ice.,broke the ice,break the ice,idiom
"""


def test_of_ones_own_sentences_it_is_known_what_is_right(tiny: Encoder, tmp_path: Path) -> None:
    """Those of the same group and meaning, without the query itself; a sentence without any is no query."""
    (tmp_path / "mine.csv").write_text(OWN)
    corpus = user_corpus(tmp_path / "mine.csv")
    assert corpus.relevant == {0: {2, 4}, 2: {0, 4}, 4: {0, 2}}
    assert (corpus.documents[1].usage, corpus.documents[1].group) == ("literal", "break the ice")
    some = corpus.with_queries(10)
    assert [query.left_out for query in some.queries] == [(0,), (2,), (4,)]
    model = SearchedModel.embedding("tiny", "", tiny, some)
    model.documents[:] = torch.eye(5, model.documents.shape[1])
    model.queries["sentence"][:] = torch.stack([model.documents[[0, 2, 4]].sum(0)] * 3)  # all alike
    model.queries["sentence"][0] += 0.1 * model.documents[1] - 0.95 * model.documents[2]
    explorer = Explorer(some, [model], 2)
    scores, (answers, _) = explorer.scores(), explorer.answers()
    assert scores is not None
    # First and third; then all.
    assert [v for (v,) in scores["sentence"]] == pytest.approx([1.5 / 1.6309, 1, 1], abs=1e-3)
    found = [[row["relevant"] for row in answer["models"][0]["rows"]] for answer in answers["sentence"]]
    assert found == [[True, False], [True, True], [True, True]]
    assert [answer["num_relevant"] for answer in answers["sentence"]] == [2, 2, 2]
    (tmp_path / "mine.csv").write_text(OWN + "What nobody has marked.,,,\n")  # texts, but nothing to train on
    assert len(user_corpus(tmp_path / "mine.csv").documents) == 6
    assert user_corpus(tmp_path / "mine.csv").relevant == {}


# ------------------------------------------------------------------ the server


@pytest.fixture
def client(explorer: Explorer) -> TestClient:
    application = server.application(explorer, "<p>the page</p>")
    return TestClient(application, base_url="http://127.0.0.1")


def test_the_server_answers(client: TestClient, explorer: Explorer) -> None:
    assert client.get("/").text == "<p>the page</p>"
    asked = {"text": "He broke the ice. The ice broke.", "words": "ice", "start": 22, "mode": "span"}
    answer = client.post("/search", json=asked).json()
    rows, model = answer["models"][0]["rows"], explorer.models[0]
    (vector,) = normalize(model.encoder.encode([str(asked["text"])], [(22, 25)]), dim=1)
    expected = (model.documents @ vector).topk(10).values.tolist()
    assert [row["cosine"] for row in rows] == pytest.approx(expected, abs=1e-4)
    texts = [explorer.corpus.documents[row["document"]].text for row in rows]
    assert [answer["documents"][str(row["document"])]["text"] for row in rows] == texts
    assert not any("relevant" in row for row in rows)
    why = client.post("/why", json=asked | {"model": 0, "document": rows[0]["document"]}).json()
    assert "".join(why["words"]) == texts[0]
    assert sum(why["shares"]) == pytest.approx(rows[0]["cosine"], abs=2e-3)
    own = client.post("/search", json={"text": "x", "query": 3, "mode": "span"}).json()
    assert all("relevant" in row for row in own["models"][0]["rows"])
    data = data_of(page(explorer, "Tiny", live=True))  # whose corpus is asked for
    assert (data["live"], data["documents"], "answers" in data) == (True, {}, False)
    assert len(data["scores"]["span"]) == len(data["queries"]) == 48


def test_a_wrong_question_is_answered_with_what_is_wrong(client: TestClient) -> None:
    for path, part, asked in (
        ("/search", "text", {"text": " "}),
        ("/search", "mode", {"mode": "words"}),
        ("/search", "mark words", {"mode": "span"}),
        ("/search", "snow", {"words": "snow"}),
        ("/search", "more", {"more": 1}),
        ("/why", "1000", {"document": 1000}),
        ("/why", "7", {"model": 7}),
    ):
        answer = client.post(path, json={"text": "ice"} | asked)
        assert answer.status_code == 400
        assert part in answer.json()["error"]


def test_another_page_may_not_ask(client: TestClient) -> None:
    own, other, file = "http://127.0.0.1", "http://127.0.0.1:1234", "null"  # or of a frame without rights
    for origin, status in ((own, 200), (other, 400), (file, 400)):
        answer = client.post("/search", json={"text": "ice"}, headers={"Origin": origin})
        assert answer.status_code == status
    assert client.get("/", headers={"Host": "elsewhere.example"}).status_code == 400


def test_no_more_of_a_query_is_read_than_a_query_has(client: TestClient) -> None:
    parts = iter([{"type": "http.request", "body": b" " * 60_000, "more_body": True}] * 20)
    assert client.post("/search", json={"text": "ice" + " " * 15_000}).status_code == 200
    assert client.post("/search", content=b'{"text": "' + b"a" * 100_000 + b'"}').status_code == 400
    assert _sent(client, parts) == 400
    assert len(list(parts)) == 18
    begun = {"type": "http.request", "body": b'{"text"', "more_body": True}
    assert _sent(client, iter([begun, {"type": "http.disconnect"}])) == 400  # which nobody receives


def _sent(client: TestClient, messages: Iterator[dict[str, Any]]) -> int:
    """The status of the answer to these messages of a client."""
    headers = [(b"host", b"127.0.0.1")]
    scope = {"type": "http", "method": "POST", "path": "/search", "headers": headers, "query_string": b""}
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: Any) -> None:
        statuses.extend([message["status"]] if message["type"] == "http.response.start" else [])

    asyncio.run(client.app(scope, receive, send))  # type: ignore[arg-type]
    return statuses[0]


def test_a_port_in_use_is_told() -> None:
    with server.bound_socket(None) as found, server.bound_socket(None) as other:
        (host, port), taken = found.getsockname(), other.getsockname()[1]
        assert (host, port == taken) == ("127.0.0.1", False)
        found.listen()
        with pytest.raises(UserError, match=f"port={port}"):
            server.bound_socket(port)


# ------------------------------------------------------------------ the page without a server


def test_a_file_holds_all_that_it_shows(tiny_path: Path, tmp_path: Path) -> None:
    texts = [*SENTENCES, "</script><svg onload=alert(1)>\u2028", "Wer nicht hören will 🙂"]
    (tmp_path / "mine.txt").write_text("\n".join(texts) + "\n\n", encoding="utf-8")
    file = tmp_path / "page.html"
    arguments = [str(tiny_path), f"corpus={tmp_path / 'mine.txt'}", f"output={file}", "neighbours=3"]
    assert main([*arguments, "device=cpu"]) == 0
    text = file.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=|https?://|url\(|@import", text.split("<script")[0])
    assert text.count("</script>") == 2
    assert "hören will 🙂" in text  # not three times as long
    data = data_of(text)
    assert (data["live"], data["scores"]) == (False, None)
    assert data["models"] == [{"name": str(tiny_path), "about": str(tiny_path), "exact": True}]
    assert [query["text"] for query in data["queries"]] == [text.strip() for text in texts]
    for answer in data["answers"]["sentence"]:
        (column,) = answer["models"]
        assert len(column["rows"]) == 3
        assert column["read"] is None
        for row in column["rows"]:
            assert "".join(data["words"][0][str(row["document"])]) == texts[row["document"]].strip()
            assert sum(row["shares"]) == pytest.approx(row["cosine"], abs=1e-3)


@pytest.fixture
def shown_by(tmp_path: Path) -> Callable[[str], str]:
    """What a browser makes of an address: the document, without its data and programs."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no chromium or google-chrome to open the page with")
    flags = "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking"
    flags += f" disable-component-update disable-sync user-data-dir={tmp_path / 'me'} dump-dom"

    def open_page(address: str) -> str:
        command = [browser, *(f"--{flag}" for flag in flags.split()), address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
        return done.stdout.partition('<script type="application/json"')[0]

    return open_page


@pytest.mark.slow
def test_the_page_works_in_a_browser(tiny_path: Path, tmp_path: Path, shown_by: Callable[[str], str]) -> None:
    """The worst query is open; another one by its address; what is found, marked and counted."""
    page = tmp_path / "page.html"
    assert main([str(tiny_path), "corpus=sample", f"output={page}", "device=cpu"]) == 0
    data = data_of(page.read_text(encoding="utf-8"))

    def asked(document: str) -> str:
        heading = document.partition('id="asked"')[2].partition("</q>")[0]
        return html.unescape(re.sub("<[^>]*>", "", heading.partition("<q")[2].partition(">")[2]))

    first = shown_by(f"{page.as_uri()}#q=No+such+query.")
    assert "“No such query.”, which is not among them" in first
    assert first.count('class="query"') == len(data["queries"])
    by_idiom: dict[str, list[tuple[float, int]]] = {}
    for number, (query, (score,)) in enumerate(zip(data["queries"], data["scores"]["sentence"], strict=True)):
        by_idiom.setdefault(query["group"], []).append((score, number))
    worst = sorted(min(by_idiom.values(), key=lambda of_idiom: sum(score for score, _ in of_idiom)))
    assert asked(first) == data["queries"][worst[0][1]]["text"]
    shown = [int(number) for number in re.findall(r'data-number="(\d+)"', first)]
    assert shown[:2] == [number for _, number in worst][:2]

    number = max(range(len(data["queries"])), key=lambda n: data["scores"]["span"][n])
    query, answer = data["queries"][number], data["answers"]["span"][number]
    second = shown_by(f"{page.as_uri()}#{urlencode({'q': query['text'], 'by': 'span'})}")
    assert asked(second) == query["text"]
    rows = answer["models"][0]["rows"]
    marks = re.findall(r'class="mark (yes|no)"', second.partition('id="columns"')[2])
    assert marks == ["yes" if row["relevant"] else "no" for row in rows]
    found = f"{marks.count('yes')} of {answer['num_relevant']} found"
    assert f"<b>{found}</b>" in second
    assert f">tiny: {found}<" in second.replace(data["models"][0]["name"], "tiny")  # read aloud
    legend = second.partition('id="legend"')[2].partition("</p>")[0]
    assert all(f">{usage}</span>" in legend for usage in data["usages"])


# ------------------------------------------------------------------ models and corpora


def a_run(folder: Path, model: Path, *, trained_on: Path | None = None, **data: Any) -> Path:
    """A planted run with this model, and with the data that it was trained on in its record."""
    files = fingerprints([trained_on] if trained_on else [])
    plant(folder, files=files, model={"path": str(model)}, data=data, objective={"name": "own"})
    shutil.copytree(model, folder / "best")
    return folder


def test_a_run_is_its_model_before_and_after(tiny_path: Path, tmp_path: Path) -> None:
    refused(lambda: find_models(str(plant(tmp_path / "other"))), "best/")
    run = a_run(tmp_path / "run", tiny_path, sample=True)
    before, after = find_models(str(run))
    assert (before.saved, after.saved) == (None, run / "best")
    assert before.settings == after.settings
    assert before.settings.path == str(tiny_path)
    assert find_models(str(run / "best")) == [before, after]
    corpus = find_corpus(settings_of("explore", models=[str(run)]))
    assert len(corpus.relevant) == len(corpus.queries) == 48
    refused(lambda: find_models(str(tmp_path)), "2 runs", str(tmp_path))


def test_a_run_reads_another_glossary(tiny_path: Path, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", tiny_path, train="x")
    (tmp_path / "mine.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    (tmp_path / "mine.tsv").write_text("expression\tmeaning\nbreak the ice\tmake people relax\n")
    file = tmp_path / "page.html"
    named = [f"corpus={tmp_path / 'mine.txt'}", f"glossary={tmp_path / 'mine.tsv'}", "queries=2"]
    assert main([str(run), *named, f"output={file}", "device=cpu"]) == 0
    data = data_of(file.read_text(encoding="utf-8"))
    assert [model["name"] for model in data["models"]] == ["untrained: model", "trained: run"]
    assert len(data["queries"]) == 2
    for column, words in zip(data["answers"]["sentence"][0]["models"], data["words"], strict=True):
        assert "(make people relax)" in "".join(piece for piece, _ in column["read"])
        assert "".join(words["1"]) == "The ship broke the ice (make people relax)."


COPIES = {  # of a text are one document
    "copies.txt": "a cat\na  cat \na dog\na cat\n",
    "copies.csv": "anchor,positive\ncats,a cat\npets,a  cat\ndogs,a dog\n",
}


def test_tables_and_folders_are_corpora(tmp_path: Path, tiny_path: Path, sample_root: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("sentence,usage,idiom,span\nHe broke the ice.,idiomatic,break the ice,broke the ice\n")
    (document,) = user_corpus(table).documents
    assert document == Passage("He broke the ice.", (3, 16), "idiomatic", "break the ice")
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("anchor,positive,negative\na cat,a kitten,a dog\na pup,a dog,a kitten\n")
    found = user_corpus(pairs)
    assert [text.text for text in found.documents] == ["a kitten", "a dog"]
    assert [text.text for text in found.queries] == ["a cat", "a pup"]
    assert found.relevant == {0: {0}, 1: {1}}
    for copies, content in COPIES.items():
        copied = user_corpus(write(tmp_path / copies, content))
        assert [document.text for document in copied.documents] == ["a cat", "a dog"]
        assert all(len(answers) < 2 for answers in copied.relevant.values())
    stranger = a_run(tmp_path / "stranger", tiny_path, train=str(pairs))
    with pytest.raises(UserError, match=r"pairs\.csv"):  # it may be any file that somebody else named
        find_corpus(settings_of("explore", models=[str(stranger)]))
    for train in (str(pairs), [str(pairs)]):  # as data.train= was written
        run = a_run(tmp_path / f"run {len(train)}", tiny_path, trained_on=pairs, train=train)
        assert find_corpus(settings_of("explore", models=[str(run)])).documents == found.documents
    for name in (sample_root, sample_root / "val"):
        assert find_corpus(settings_of("explore", models=["x"], corpus=str(name))).name.endswith("val")
    assert user_corpus(write_collection(tmp_path / "beir")).relevant == {0: {0, 2}, 1: {2}}
    excluded = '{"_id": "q1", "text": "cats", "excluded_ids": ["d2"]}\n{"_id": "q2", "text": "x"}\n'
    bright = user_corpus(write_collection(tmp_path / "bright", queries=excluded))
    assert [query.left_out for query in bright.queries] == [(1,), ()]


# ------------------------------------------------------------------ what is told


MISTAKES = {
    "nonsense output=page.html": "nonsense minilm",
    "minilm corpus=none.txt output=page.html": "corpus= none.txt",
    "minilm corpus=empty.txt output=page.html": "empty.txt text",
    "minilm corpus=no_text.csv output=page.html": "no_text.csv text",
    "minilm glossary=none.tsv output=page.html": "glossary= none.tsv",
    "minilm output=.": "output=",
    "minilm corpus=sample": "idiomtune[explore] output=page.html",
}


def test_mistakes_are_named_before_a_model_is_loaded(
    in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Encoder, "from_pretrained", None)
    monkeypatch.setattr(server, "find_spec", lambda name: None if name == "uvicorn" else name)
    (in_folder / "empty.txt").write_text("\n \n")
    (in_folder / "no_text.csv").write_text("name,age\nx,1\n")
    for arguments, named in MISTAKES.items():
        assert main(arguments.split()) == 2
        message = capsys.readouterr().err
        assert all(part in message for part in named.split()), message
