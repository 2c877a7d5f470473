"""Data sets that language models write: asked, checked, judged, reviewed; the answers are scripted."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, product
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import yaml

import idiomtune as it
from idiomtune import cli
from idiomtune.config.settings import WriteSettings
from idiomtune.data.idiolink import Document, load_split
from idiomtune.errors import UserError
from idiomtune.expressions import ExpressionIndex
from idiomtune.io.files import read_json
from idiomtune.io.tables import read_rows
from idiomtune.writing.dataset import split_expressions
from idiomtune.writing.review import Review, agreement_of
from idiomtune.writing.rules import Rules, clean
from idiomtune.writing.run import write as write_data
from idiomtune.writing.slots import Draft, Slot
from idiomtune.writing.texts import _AnsweredText, _items_of
from tests.chat_server import EXPRESSIONS, ChatServer, chat_server, sentence
from tests.programs import refused

KEY = "sk-a-very-secret-key-of-mine"


def run(words: Sequence[str]) -> str:
    """The last line that `idiomtune write` prints."""
    name = f"write {words[0]}" if f"write {words[0]}" in cli.PROGRAMS else "write"
    return str(cli.run(name, words[name != "write" :]))


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("idiomtune.writing.chat._PAUSES", (0.01,) * 6)
    monkeypatch.setattr("idiomtune.writing.chat._FIRST_PAUSES", (0.01,))
    with chat_server() as server:
        yield server


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table of two expressions."""
    monkeypatch.chdir(tmp_path)
    write_table(*list(EXPRESSIONS)[:2])
    return tmp_path


def write_table(*names: str) -> None:
    rows = [f"{name}\t{EXPRESSIONS[name][1]}\n" for name in names]
    Path("mine.tsv").write_text("expression\tmeaning\n" + "".join(rows), "utf-8")


@cache
def settings_of(*options: str) -> WriteSettings:
    """By default 24 texts in 12 questions, and 12 questions to the judge."""
    names = ["model=author", "query_model=other", "judge_model=judge", "domains=Sport", "votes=1"]
    settings: WriteSettings = cli.read_settings("write", ["mine.tsv", "output=data", *names, *options])
    return settings


def write(chat: ChatServer, *options: str) -> str:
    """What `idiomtune write mine.tsv` of these options says in the end."""
    return write_data(settings_of(*options).model_copy(update={"endpoint": chat.address}))


def texts() -> list[dict[str, Any]]:
    return [row.values for row in read_rows(Path("data/texts.jsonl"))]


def documents() -> dict[str, Document]:
    names = [path.parent.name for path in Path("data").glob("*/indexes.json")]
    return {d.id: d for name in names for d in load_split(Path("data"), name).documents}


def test_the_data_set_has_idiolinks_form_and_is_scored(chat: ChatServer, tiny_path: Path) -> None:
    write(chat, "domains=[Sport,Food]", "votes=2", "licence=mit")
    splits = [load_split(Path("data"), name) for name in ("train", "val")]
    idioms = [{document.idiom for document in split.documents} for split in splits]
    assert idioms[0] | idioms[1] == set(list(EXPRESSIONS)[:2])
    assert not idioms[0] & idioms[1]
    usages = {"literal": 4, "idiomatic": 2, "sense": 2, "simplification": 2}
    kinds = Counter((d.idiom, d.subject, d.usage) for split in splits for d in split.documents)
    slots = product(idioms[0] | idioms[1], ("Sport", "Food"), usages)
    assert kinds == {(name, domain, usage): usages[usage] for name, domain, usage in slots}
    queries = Counter((q.idiom, q.usage) for split in splits for q in split.queries)
    assert set(queries.values()) == {2}  # one in each domain
    # Queries by the other model, verdicts by the judge, two votes on each question's texts.
    assert chat.models() == {"author": 2 * 2 * 4, "other": 2 * 2 * 2, "judge": 2 * 2 * 2 * 6}
    assert chat.keys == {f"Bearer {KEY}"}
    assert all(body["response_format"]["json_schema"]["strict"] for body in chat.bodies)
    # What was asked and paid, and nothing secret, is in the folder.
    record = read_json(Path("data/write.json"))
    assert (record["calls"], record["prompt_tokens"]) == (len(chat.bodies), 100 * len(chat.bodies))
    contents = [path.read_text("utf-8") for path in Path("data").rglob("*.*") if path.is_file()]
    assert not [content for content in contents if KEY in content or chat.address in content]
    assert yaml.safe_load(Path("data/README.md").read_text("utf-8").split("---")[1])["license"] == "mit"
    scores = it.evaluate(tiny_path, ["idiolink"], **{"data": {"idiolink": "data"}})
    assert 0 < scores["idiolink/val/sentence/ndcg@10"] <= 1


def test_uses_are_sentences_to_learn_from(chat: ChatServer) -> None:
    words = ["mine.tsv", "uses=true", f"endpoint={chat.address}", "output=uses", "model=author"]
    assert "corpus=uses/sentences.txt" in run(words)
    lines, index = Path("uses/sentences.txt").read_text("utf-8").splitlines(), ExpressionIndex(EXPRESSIONS)
    found = Counter(name for line in lines for *_, name in index.find(line))
    assert found == dict.fromkeys(list(EXPRESSIONS)[:2], 8)
    assert chat.models().keys() == {"author"}  # no judge, no queries
    num_questions = len(chat.bodies)
    assert "16 texts:" in run([*words, "dry_run=true"])
    run(words)
    assert len(chat.bodies) == num_questions


def test_nothing_is_paid_twice_and_a_changed_prompt_asks_what_changed(chat: ChatServer, here: Path) -> None:
    write(chat)
    before, files = len(chat.bodies), {p: p.read_bytes() for p in Path("data/train").iterdir()}
    write(chat)
    assert len(chat.bodies) == before
    assert files == {path: path.read_bytes() for path in files}
    path = Path("data/answers.jsonl")
    for damage in (path.read_bytes()[:-1], path.read_bytes() + b'{"key": "torn'):  # as the disk got full
        path.write_bytes(damage)
        write(chat)
        assert len(chat.bodies) == before
    write(chat, "votes=2")  # behind a torn line
    paid = len(chat.bodies)
    write(chat, "votes=2")
    assert len(chat.bodies) == paid == before + 12
    before = paid
    (here / "own").mkdir()
    for path in Path("data/prompts").glob("*.txt"):
        (here / "own" / path.name).write_text(path.read_text().replace("plain words.", "plain words!"))
    write(chat, "prompts=own")
    # The prompt of senses alone has changed: 2 questions, and 2 votes on other texts.
    assert chat.models(since=before) == {"author": 2, "judge": 2}
    (here / "own" / "sense.txt").write_text("Write $cout texts")
    refused(lambda: write(chat, "prompts=own"), "prompts", "sense.txt", "$count")


def refusal(status: int, message: str, **more: Any) -> tuple[int, Any]:
    return status, {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        *((404, ["author"]), (400, [])),
        (refusal(400, "max_tokens 2000 is too large, at most 1024"), ["1024"]),  # not left out
        # An error with status 200.
        (refusal(200, "rate limited upstream", code=429), ["rate limited upstream"]),
        (refusal(200, "no such key", code="401"), ["OPENAI_API_KEY"]),
        ((200, {"choices": [{"error": {"message": "upstream fell", "code": 502}}]}), ["upstream fell"]),
        # No protocol.
        *((content, ["/v1"]) for content in (b"<html>no</html>", b"[" * 10**6)),
    ],
)
def test_what_a_server_refuses_is_said_at_once(reply: Any, named: list[str], chat: ChatServer) -> None:
    """And nothing is stored."""
    chat.reply = lambda _: reply
    error = refused(lambda: write(chat), "endpoint", *named)
    assert KEY not in str(error)
    assert len(chat.bodies) <= 4  # one question in four forms, not eight at once
    assert all(body.keys() & {"max_tokens", "max_completion_tokens"} for body in chat.bodies)
    assert not Path("data/answers.jsonl").exists()


def test_an_interrupted_start_goes_on(chat: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server fails after 10 answers, then the disk is full: each next start pays for the others alone."""
    good, numbers, path = chat.reply, count(), Path("data/answers.jsonl")
    chat.reply = lambda body: good(body) if next(numbers) < 10 else 401
    refused(lambda: write(chat), "OPENAI_API_KEY")
    assert len(path.read_text().splitlines()) == 10

    def fsync(_: int) -> None:
        if len(path.read_text().splitlines()) > 16:
            raise OSError(28, "No space left on device")

    chat.reply, before = good, len(chat.bodies)
    with monkeypatch.context() as full:
        full.setattr("idiomtune.writing.chat.os.fsync", fsync)
        refused(lambda: write(chat), "answers.jsonl", "No space left")
    num_paid = len(path.read_text().splitlines())
    assert num_paid >= 16
    assert len(chat.bodies) - before == num_paid - 10
    before = len(chat.bodies)
    write(chat)
    assert len(chat.bodies) - before == 24 - num_paid


def test_a_busy_server_and_answers_of_all_kinds(chat: ChatServer) -> None:
    """429 and 500 are asked again, and so are answers without JSON, cut off, or with wrong texts."""
    seen = Counter[str]()

    def reply(prompt: str, good: str) -> Any:
        with chat.lock:
            seen[prompt] += 1
            number, is_first = len(seen), seen[prompt] == 1
        if is_first and number % 5 == 0:
            return 429 if number % 2 else 500
        if "[[" in prompt or "broke a rule" in prompt:
            return good
        if "LITERALLY" in prompt:
            return f"Here you are:\n```json\n{good}\n```"
        return [good[:50], "No.", '{"texts": [{"text": 1}]}'][number % 3]

    chat.change(reply)
    write(chat, "tries=2")
    assert Counter(text["usage"] for text in texts())["literal"] == 2 * 5  # queries among them
    assert sum(number for *_, number in read_json(Path("data/write.json"))["broken"]) > 0


@pytest.mark.parametrize(
    ("unknown", "refusal"),
    [
        (["response_format", "max_tokens"], 400),
        (["response_format"], (500, {"error": {"message": "failed to parse grammar"}})),
        (
            ["temperature"],
            (400, {"error": {"message": "only the default (1) is supported", "param": "temperature"}}),
        ),
        (["temperature"], (422, {"detail": [{"loc": ["body", "temperature"], "msg": "not permitted"}]})),
        (["max_tokens"], (400, {"error": "'max_tokens' is unknown. Use 'max_completion_tokens' instead."})),
    ],
)
def test_servers_that_lack_an_option_are_asked_without_it(
    unknown: list[str], refusal: Any, chat: ChatServer, caplog: pytest.LogCaptureFixture
) -> None:
    good = chat.reply
    chat.reply = lambda body: refusal if body.keys() & unknown else good(body)
    write(chat, "concurrency=2")
    assert len(texts()) == 2 * 12
    assert len(chat.bodies) <= 24 + 5 * 3  # what it takes is remembered, by two questions at once
    if unknown[0] != "max_tokens":
        told = [message for message in caplog.messages if unknown[0] in message]
        assert len(told) == 3  # once for each model


@pytest.mark.parametrize("reply", [{"content": None, "reasoning_content": "I think"}, "<think>As they"])
def test_answers_cut_off_within_the_reasoning_end_the_run_early(reply: Any, chat: ChatServer) -> None:
    chat.reply, chat.finish_reason = lambda _: reply, "length"
    refused(lambda: write(chat, "concurrency=1"), "answer_tokens=8000")
    assert len(chat.bodies) == 3  # none is begun after the answer that ends the run


_HEAD = b"HTTP/1.1 200 OK\r\n"


def _slowly(file: Any, begin: bytes, end: bytes = b"", seconds: float = 0.5) -> None:
    file.write(begin)
    for _ in range(int(seconds * 20)):
        file.write(b" ")
        time.sleep(0.05)
    file.write(end)


@pytest.mark.parametrize(
    ("write_to", "named"),
    [
        (lambda file, good: _slowly(file, _HEAD + b"\r\n", good), "timeout=0.1"),
        (lambda file, good: file.write(_HEAD + b"\r\n" + b" " * 5_000_000 + good), "bytes"),
    ],
)
def test_an_answer_has_a_deadline_and_a_size(write_to: Any, named: str, chat: ChatServer) -> None:
    """Each of them ends with a good answer."""

    def reply(_: str, good: str) -> Any:
        content = {"choices": [{"finish_reason": "stop", "message": {"content": good}}]}
        return lambda file: write_to(file, json.dumps(content).encode())

    chat.change(reply)
    refused(lambda: write(chat, named if "=" in named else "timeout=60"), "endpoint", named)
    assert not Path("data/answers.jsonl").exists()


def test_a_second_interrupt_waits_for_no_answer(chat: ChatServer) -> None:
    has_ended = threading.Event()

    def response(file: Any) -> None:
        for _ in range(2):
            time.sleep(0.3)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        _slowly(file, _HEAD, seconds=5)
        has_ended.set()

    chat.reply = lambda _: response
    with pytest.raises(KeyboardInterrupt):
        write(chat)
    assert not has_ended.is_set()


def test_reading_an_answer_never_steps_back() -> None:
    """If it did, each of them would take minutes."""
    for text in ("{" * 10**6, '{"texts": [' * 10**5, '{\\"' * 10**6):
        assert not _items_of(text, "texts", _AnsweredText)


def test_a_refused_question_is_left_out_and_others_go_on(chat: ChatServer) -> None:
    chat.change(lambda prompt, good: 400 if "LITERALLY" in prompt and "Food" in prompt else good)
    write(chat, "domains=[Sport,Food]")
    kinds = Counter((text["usage"], text["domain"]) for text in texts())
    assert (kinds["literal", "Food"], kinds["literal", "Sport"]) == (0, 2 * 5)


@pytest.mark.parametrize(
    ("answer_of", "num_readable"),
    [
        (lambda good: f'<think>As {{"texts": [...]}} I write.</think>{good}', 2),
        (lambda good: good[:-30], 1),  # cut off in the second text
        (lambda good: [{"type": "thinking"}, {"type": "text", "text": good.replace('"span"', '"s"', 1)}], 1),
        (lambda good: good.replace("man", "m\\ud800\\u0007an"), 2),
        (lambda good: {"content": "", "reasoning_content": good}, 2),
        (lambda _: None, 0),
    ],
)
def test_answers_are_read_as_far_as_they_can_be(
    answer_of: Callable[[str], Any], num_readable: int, chat: ChatServer, caplog: pytest.LogCaptureFixture
) -> None:
    """For senses; tries=1, so that nothing is asked again."""
    chat.change(lambda p, good: answer_of(good) if "plain words.\n" in p and "[[" not in p else good)
    write(chat, "tries=1")
    assert Counter(text["usage"] for text in texts())["sense"] == 2 * num_readable
    is_told = any("reasoning_content" in message for message in caplog.messages)
    assert is_told == isinstance(answer_of(""), dict)
    write(chat, "tries=1")  # what was stored can be read


def test_an_answer_that_was_cut_off_is_asked_for_with_more_tokens(chat: ChatServer) -> None:
    good = chat.reply
    chat.finish_reason, chat.reply = "length", lambda body: good(body)[:20]
    refused(lambda: write(chat, "tries=1"), "model")
    chat.finish_reason, chat.reply, before = "stop", good, len(chat.bodies)
    write(chat, "tries=1", "answer_tokens=4000")
    assert len(chat.bodies) - before == 24


def test_expressions_in_forms_that_rules_do_not_know_are_said_early(chat: ChatServer) -> None:
    """Before all attempts and simplifications are paid."""
    chat.change(lambda _, good: good.replace("broke", "brôke").replace("missed", "mîssed"))
    refused(lambda: write(chat, "language=pt"), "expressions", "forms")
    assert len(chat.bodies) == 10


def test_a_budget_is_never_passed(chat: ChatServer) -> None:
    good, numbers = chat.reply, count(1)
    chat.reply = lambda body: 503 if next(numbers) % 4 == 2 else good(body)
    refused(lambda: write(chat, "max_calls=10"), "max_calls=10")
    assert len(chat.bodies) == 10  # a vendor may count what it does not answer
    chat.reply = good
    write(chat, "max_calls=24")
    assert len(list(read_rows(Path("data/answers.jsonl")))) == 24
    assert len(chat.bodies) < 24 + 10


def test_a_dry_run_asks_nothing(chat: ChatServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert "24 questions" in write(chat, "dry_run=true", "language=pt")
    assert capsys.readouterr().out.count("Portuguese") >= 7
    assert not chat.bodies
    assert not Path("data").exists()


def test_texts_need_more_than_half_of_the_votes(chat: ChatServer) -> None:
    asked = Counter[str]()

    def reply(prompt: str, good: str) -> str:
        if "[[" not in prompt or "other words, which convey" not in prompt:
            return good
        with chat.lock:
            asked[prompt] += 1
            number = asked[prompt]
        verdicts = json.loads(good)["verdicts"]
        verdicts[0]["span"] = number != 1  # two of three votes
        verdicts[1]["natural"] = number == 1  # one of three
        return json.dumps({"verdicts": verdicts})

    chat.change(reply)
    write(chat, "votes=3")
    votes = {tuple(sorted(text["votes"])) for text in texts() if text["usage"] == "sense"}
    assert votes == {(False, True, True), (False, False, True)}
    assert not Draft("", "", [True, True, False, False]).is_accepted
    assert sum(d.usage == "sense" for d in documents().values()) == 2  # one of two of each expression


@pytest.mark.parametrize("num_unreadable", [1, 2])
def test_a_vote_that_cannot_be_read_is_asked_for_once_more(num_unreadable: int, chat: ChatServer) -> None:
    asked = Counter[str]()

    def reply(prompt: str, good: str) -> str:
        with chat.lock:
            asked[prompt] += 1
            return good if "[[" not in prompt or asked[prompt] > num_unreadable else "They are all fine."

    chat.change(reply)
    if num_unreadable == 1:
        write(chat)
    else:  # then it is against the text
        refused(lambda: write(chat), "data", "texts.jsonl")
    assert [text["votes"] for text in texts()] == [[num_unreadable == 1]] * 24
    assert chat.models()["judge"] == 2 * 12


def mark(row: int, **cells: str) -> str:
    """Fill cells of the review's spreadsheet; returns the text's id."""
    book = openpyxl.load_workbook("data/review.xlsx")
    sheet: Any = book.active
    columns = {cell.value: cell.column for cell in sheet[1]}
    for name, value in cells.items():
        sheet.cell(row, columns[name]).value = value
    book.save("data/review.xlsx")
    return str(sheet.cell(row, columns["id"]).value)


def test_people_review_in_a_spreadsheet(chat: ChatServer) -> None:
    write(chat, "licence=cc0-1.0")
    assert "review.xlsx" in run(["review", "folder=data"])
    written = {text["id"]: text for text in texts()}
    accepted = mark(2, accept="yes", note="good")
    corrected = mark(3, accept=" YES ", text=written["001_s01_lit_02"]["text"] + " At last!")
    struck = mark(4, accept="no")
    mark(5, text="edited, but not marked")
    run(["review", "folder=data"])
    records = documents()
    assert records[accepted].is_gold
    assert records[corrected].sentence == written[corrected]["text"] + " At last!"
    assert struck not in records
    assert sum(record.is_gold for record in records.values()) == 2
    # The judge accepted all three; one was right as it was written.
    reviewed = read_json(Path("data/write.json"))["reviewed"]
    assert (reviewed["num_invalid"], reviewed["num_passed"]) == (2, 2)
    assert reviewed["accuracy"] == pytest.approx(1 / 3)
    rows = list(read_rows(Path("data/review.xlsx")))
    assert (rows[0].values["note"], rows[3].values["text"]) == ("good", "edited, but not marked")  # stay
    write(chat, "licence=cc0-1.0")
    assert documents() == records
    mark(2, accept="perhaps")
    refused(lambda: run(["review", "folder=data"]), "review.xlsx", "row 2", "accept")
    mark(2, accept="yes", span="not there")
    refused(lambda: run(["review", "folder=data"]), "review.xlsx", "row 2", "span")
    # A blank row above the header, and a text without its row.
    mark(2, span=written[accepted]["span"])
    book = openpyxl.load_workbook("data/review.xlsx")
    sheet: Any = book.active
    sheet.insert_rows(1)
    sheet.delete_rows(sheet.max_row)
    book.save("data/review.xlsx")
    run(["review", "folder=data"])
    assert {row.values["key"] for row in read_rows(Path("data/review.xlsx"))} == {t["key"] for t in texts()}


def test_marks_stay_with_their_texts(chat: ChatServer) -> None:
    """Though the table of expressions changes, so that ids and rows do; and splits stay as they were."""

    def idioms() -> dict[str, set[str]]:
        splits = {name: load_split(Path("data"), name).documents for name in ("train", "val")}
        return {name: {d.idiom for d in found} for name, found in splits.items()}

    write(chat)
    before = idioms()
    run(["review", "folder=data"])
    sentence_of = {text["id"]: text["text"] for text in texts()}
    gold, struck = (sentence_of[mark(row, accept=answer)] for row, answer in ((2, "yes"), (3, "no")))
    marked, *others = EXPRESSIONS
    write_table(others[1], others[0], marked)
    write(chat)
    run(["review", "folder=data"])
    after = documents().values()
    assert {d.sentence for d in after if d.is_gold} == {gold}
    assert struck not in {d.sentence for d in after}
    assert all(before[split] <= found for split, found in idioms().items())
    # A mark on a text that is there no longer is kept in the sheet, and counts for no other text.
    write_table(*others[:2])
    write(chat)
    assert not [d for d in documents().values() if d.is_gold]
    assert [r.values["accept"] for r in read_rows(Path("data/review.xlsx"))].count("yes") == 1


def test_what_write_has_not_written_stays_and_links_are_refused(
    chat: ChatServer, here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_table(*list(EXPRESSIONS)[:3])
    write(chat, "test=0.3")
    for name in (".~lock.review.xlsx#", "~$review.xlsx", ".DS_Store", "notes.txt"):
        Path("data", name).touch()
    edited = ["README.md", "prompts/judge.txt", "train/queries.json"]
    for name in edited:
        Path("data", name).write_text(Path("data", name).read_text() + "\n")
    Path("data/test/mine.txt").write_text("mine")
    before = {name: Path("data", name).read_bytes() for name in edited}
    caplog.clear()
    write(chat)
    assert before == {name: Path("data", name).read_bytes() for name in edited}
    assert any(all(name in message for name in edited) for message in caplog.messages)
    assert [path.name for path in Path("data/test").iterdir()] == ["mine.txt"]  # of a split that is no more
    Path("data/README.md").unlink()
    write(chat)
    assert "1 votes" in Path("data/README.md").read_text()
    (here / "private.txt").write_text("secret")
    Path("data/prompts/judge.txt").unlink()
    Path("data/prompts/judge.txt").symlink_to(here / "private.txt")
    refused(lambda: write(chat), "output", "judge.txt")
    refused(lambda: run(["review", "folder=data"]), "folder", "judge.txt")


def test_agreement_by_hand() -> None:
    answers = zip("abcde", (True, True, True, False, False), (True, True, False, False, True), strict=True)
    rows, reviews = [], {}
    for key, judged, marked in answers:
        rows.append({"key": key, "text": "t s", "span": "s", "accepted": judged})
        reviews[key] = Review(marked, "t s", "s")
    found = agreement_of(rows, reviews)
    assert found is not None
    assert found.accuracy == pytest.approx(3 / 5)
    assert found.macro_f1 == pytest.approx((4 / 6 + 2 / 4) / 2)
    assert (found.num_invalid, found.num_passed) == (2, 1)


SLOT = Slot(1, "break the ice", 1, "Sport", "idiomatic")
SENSE = Slot(1, "break the ice", 1, "Sport", "sense")
SIMPLE = Slot(1, "break the ice", 1, "Sport", "simplification")
TAPE = Draft("They cut the red tape at last.", "red tape")
ICE = Draft("他在会议上打破僵局，大家笑了。", "打破僵局")
RIDE = "The firm took the voters for a ride last year."


@pytest.mark.parametrize(
    ("slot", "text", "span", "rule"),
    [
        (SLOT, "At last somebody broke the ice with a joke.", "broke the ice", None),
        (SLOT, "At last somebody broke the ice with a joke.", "break the ice", "span"),
        (SLOT, "At last somebody broke the ice with a joke.", "a joke", "the expression once"),
        (SLOT, "They broke the ice and broke the ice again.", "broke the ice", "the expression once"),
        (SLOT, "A joke broke the ice for those who missed the boat.", "broke the ice", "other"),
        (SLOT, "Broke the ice.", "Broke the ice", "characters"),
        (SLOT, "They met. They talked. A joke broke the ice.", "broke the ice", "sentences"),
        (SENSE, "The joke cured their disease at last.", "ease", "span"),
        (SENSE, "那个笑话让大家都放松了下来。", "放松", None),
        (SENSE, "他来了。他说。他走。大家都放松了下来。", "放松", "sentences"),
        (SENSE, "At last somebody made the guests feel at ease.", "feel at ease", None),
        (SENSE, "At last somebody broke the ice with a joke.", "a joke", "without"),
        (SIMPLE, "An odd joke relaxed everybody at the meeting.", "relaxed everybody", None),
        (SIMPLE, "An odd joke relaxed everybody at the dinner.", "relaxed everybody", "only the span"),
        (SLOT, "At last somebody broke the ice with a joke\uffff.", "broke the ice", "spreadsheet"),
    ],
)
def test_rules(slot: Slot, text: str, span: str, rule: str | None) -> None:
    rules = Rules(ExpressionIndex(["break the ice", "miss the boat"]))
    sources = [Draft("An odd joke broke the ice at the meeting.", "broke the ice")]
    broken = rules.broken_rule(slot, Draft(text, span), sources)
    assert broken is None if rule is None else rule in str(broken)


@pytest.mark.parametrize(
    ("source", "text", "span", "is_right"),
    [
        (TAPE, "They cut bureaucracy at last.", "bureaucracy", True),  # the article is gone
        (TAPE, "They reduced the rules at last.", "rules", True),
        (TAPE, "They all cut bureaucracy at last.", "bureaucracy", False),
        (TAPE, "They cut bureaucracy the at last.", "bureaucracy", True),
        (TAPE, "They cut bureaucracy at least.", "bureaucracy", False),
        (TAPE, "They cut bureaucracy.", "bureaucracy", False),
        (ICE, "他在会议上活跃气氛，大家笑了。", "活跃气氛", True),  # without blanks between words
        (ICE, "她在晚饭时活跃气氛，大家哭了。", "活跃气氛", False),
    ],
)
def test_a_simplification_changes_the_span_alone(source: Draft, text: str, span: str, is_right: bool) -> None:
    """Articles beside it may come and go."""
    found = Rules(ExpressionIndex(["red tape"])).source_of(Draft(text, span), [source])
    assert (found is not None) == is_right


def test_the_span_of_an_expression_is_the_expression() -> None:
    rules = Rules(ExpressionIndex(["break the ice", "take someone for a ride"]))
    for name, text, span, whole in (
        ("break the ice", "At last somebody broke the ice with a joke.", "ice with a joke", "broke the ice"),
        ("take someone for a ride", RIDE, "took", "took the voters for a ride"),
    ):
        draft = Draft(text, span)
        assert rules.broken_rule(replace(SLOT, expression=name), draft) is None
        assert draft.span == whole


def test_near_duplicates_are_those_of_a_comparison_of_all_pairs() -> None:
    """Jaccard of the words, 0.8 or more; only texts that may be so near are compared."""
    rules, accepted = Rules(ExpressionIndex(["break the ice"])), list[set[str]]()
    for number in range(300):
        words = sentence("did it", str(number // 3)).split()
        if number % 3:  # the same but for a word, or for four
            words[1:2] = [f"other{number}"]
            words[-4:-1] = [f"x{number}", "y", "z"] if number % 3 == 2 else words[-4:-1]
        words_of = {word.lower().rstrip(".") for word in words}
        is_near = any(len(words_of & other) >= 0.8 * len(words_of | other) for other in accepted)
        broken = rules.broken_rule(SENSE, Draft(" ".join(words), "did it"))
        assert broken == ("no near duplicate" if is_near else None)
        accepted += [] if is_near else [words_of]
    assert 100 < len(accepted) < 300


def test_splits_are_stratified() -> None:
    halves, shares = {"train": 0.7, "val": 0.3}, {f"e{number:02}": number / 20 for number in range(20)}
    split_of = split_expressions(shares, {"train": 0.6, "val": 0.3, "test": 0.1}, {})
    assert Counter(split_of.values()) == {"train": 12, "val": 6, "test": 2}
    train, val = ([shares[n] for n in split_of if split_of[n] == split] for split in ("train", "val"))
    assert abs(sum(train) / 12 - sum(val) / 6) < 0.1
    assert {*split_expressions({"a": 0.1, "b": 0.2}, halves, {}).values()} == {"train", "val"}
    with pytest.raises(UserError, match="1 expressions"):
        split_expressions({"a": 0.1}, halves, {})
    later = split_expressions(shares | {f"f{number}": number / 20 for number in range(10)}, halves, split_of)
    assert all(later[name] == split for name, split in split_of.items() if split != "test")
    assert Counter(later.values()) == {"train": 21, "val": 9}


def test_expressions_are_selected_by_their_labels(chat: ChatServer) -> None:
    rows = [
        *[("break the ice", "idiomatic", 1)] * 5,
        *[("break the ice", "literal", 1)] * 5,
        *[("kick the bucket", "figurative", 1)] * 9,
        *[("kick the bucket", "literal", 1)],
        *[("hit the road", "i", 1)] * 5,
        *[("hit the road", "l", 0.8)] * 5,
        ("miss the boat", "l", 1),
    ]
    Path("uses.csv").write_text("idiom,label,confidence\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    options = ["from=uses.csv", "output=selected.tsv", "min_uses=8"]
    run(["select", *options])
    (row,) = read_rows(Path("selected.tsv"))
    assert [*row.values.values()] == ["break the ice", "", "yes", "10", "50"]
    run(["select", *options, "idiomatic=10..95", "overwrite=true"])
    assert len(list(read_rows(Path("selected.tsv")))) == 2
    run(["select", *options, "confidence=0.5", "overwrite=true"])
    assert len(list(read_rows(Path("selected.tsv")))) == 2
    refused(lambda: run(["select", *options, "min_uses=80", "overwrite=true"]), "min_uses=80")
    table = Path("selected.tsv").read_text().replace("hit the road\t\tyes", "hit the road\t\tno")
    Path("mine.tsv").write_text(table + "miss the boat\t\tyes\t1\t1\n")
    write(chat)
    assert {text["expression"] for text in texts()} == {"break the ice", "miss the boat"}


def test_questions_run_at_once(chat: ChatServer) -> None:
    now, most, change = 0, 0, threading.Condition()

    def slow(_: str, good: str) -> str:
        """Waits for three others, until four have been there at once; the first question goes alone."""
        nonlocal now, most
        with change:
            now, most = now + 1, max(most, now + 1)
            change.notify_all()
            if len(chat.bodies) > 1:
                change.wait_for(lambda: most >= 4, timeout=300)
            now -= 1
        return good

    chat.change(slow)
    write(chat, "concurrency=4")
    assert most == 4


@pytest.mark.parametrize("names", [["thesis.txt"], ["train/indexes.json", "test/a.json"], ["answers.jsonl"]])
def test_a_folder_without_a_record_is_left_alone(names: list[str], chat: ChatServer, here: Path) -> None:
    for name in names:
        (here / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "data" / name).write_text("mine")
    refused(lambda: write(chat), "output", names[-1].split("/")[0])
    assert {path.read_text() for path in (here / "data").rglob("*.*") if path.name[0] != "."} == {"mine"}
    assert not chat.bodies


def test_wrong_options_are_refused(chat: ChatServer, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "data").mkdir()
    refused(lambda: run(["review", "folder=data"]), "folder")
    refused(lambda: write(chat, "val=0.6", "test=0.4"), "val")
    refused(lambda: run(["output=x", "model=y"]), "expressions")
    error = refused(lambda: it.write({"a b": ""}, "x", "y", key="sk-my-own-secret"), "key")
    assert "sk-my" not in str(error)
    refused(lambda: run(["none.tsv", "output=x", "model=y"]), "none.tsv")
    assert "hunter2" not in str(refused(lambda: write(chat, "key=hunter2_and_more"), "key"))
    for value in ("sword\nfish", "sword\x7ffish", "swordfïsh"):  # no key has these signs
        monkeypatch.setenv("MYAUTH", value)
        assert "sword" not in str(refused(lambda: write(chat, "key=MYAUTH"), "key", "MYAUTH"))
    assert not chat.bodies


@pytest.mark.parametrize(
    "reply",
    [
        lambda good, key: good.replace("man", f"man {key}"),
        lambda _, key: (400, {"detail": key}),
        lambda _, key: {"content": None, "refusal": key},
        lambda _, key: key.encode(),
    ],
)
def test_the_key_is_neither_shown_nor_stored(
    reply: Any, chat: ChatServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a variable whose name does not say that it is secret; also as JSON has it."""
    key, shown = 'sword"fish\\17-xyz', ""
    monkeypatch.setenv("MYAUTH", f" {key}\n")
    chat.change(lambda _, good: reply(good, key))
    try:
        shown = write(chat, "key=MYAUTH")
    except UserError as error:
        shown = str(error)
    stored = [path.read_text("utf-8") for path in Path("data").rglob("*") if path.is_file()]
    assert not [text for text in (shown, *caplog.messages, *stored) if "fish" in text]
    assert chat.keys == {f"Bearer {key}"}


def test_marks_are_removed_and_nothing_else() -> None:
    for mark in (
        *("**{}**", "[[{}]]", "[{}]", "*{}*", "__{}__", "_{}_", "<b>{}</b>", "`{}`", "\u200b{}", "{}\u00ad"),
        *("1. {}", '2) "{}"', "- {}", "• {}", "“{}”", "«{}»", '"{}"', "&quot;{}&quot;", "{}\\n"),
    ):
        assert clean(mark.format("He broke the ice.")) == "He broke the ice."
    unchanged = "“Yes,” he said, “we broke the ice.”", "It's 5_000 or 3-4.", "Er sagt »ja« dazu.", "می‌خواهم"
    assert tuple(map(clean, unchanged)) == unchanged


def test_the_end_says_what_is_missing(chat: ChatServer, caplog: pytest.LogCaptureFixture) -> None:
    def reply(prompt: str, good: str) -> str:
        is_spoiled = "Rewrite each text" in prompt and "»break the ice«" in prompt
        return good.replace("arrived", "left") if is_spoiled else good

    chat.change(reply)
    caplog.set_level("INFO")
    assert "22 of 24" in write(chat)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "break the ice: simplification 2" in told[-1]
    counts = next(message for message in caplog.messages if "only the span differs 6" in message)
    assert all(number in counts for number in ("22", "24"))


def test_odd_values_are_named_and_asked_for_again(chat: ChatServer, caplog: pytest.LogCaptureFixture) -> None:
    write(chat)
    path, before = Path("data/answers.jsonl"), len(chat.bodies)
    lines = path.read_text().splitlines()
    lines[0] = lines[0].replace('"prompt_tokens":100', '"prompt_tokens":NaN')
    lines[1] = lines[1].replace('"date":"', '"date":"x')
    path.write_text("\n".join([*lines[:5], "[1]", *lines[5:]]) + "\n")
    write(chat)
    assert len(chat.bodies) == before + 2
    assert any("answers.jsonl" in message and "1, 2, 6" in message for message in caplog.messages)
    for path, good, wrong, named in (
        (Path("data/texts.jsonl"), '"votes": [true', '"votes": [7', "row 1"),
        (Path("data/write.json"), '"judged": 24', '"judged": "x"', "judged"),
    ):
        content = path.read_text()
        path.write_text(content.replace(good, wrong))
        refused(lambda: run(["review", "folder=data"]), path.name, named)
        path.write_text(content)


def test_from_python(chat: ChatServer) -> None:
    about: Any = {"endpoint": chat.address, "domains": ["Sport"], "judge_model": "judge", "votes": 1}
    folder = it.write({"break the ice": "made everybody relax", "cut corners": ""}, "data", "author", **about)
    assert load_split(folder, "val").queries
    folder = it.write(list(EXPRESSIONS)[:3], "others", "author", **about)
    assert len({document.idiom for document in load_split(folder, "train").documents}) == 2
