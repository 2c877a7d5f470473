"""`idiomtune glossary`: from dictionaries in their published forms to a file that models read."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import idiomtune as it
from idiomtune.cli import run as run_program
from idiomtune.data.dictionaries import is_expression
from idiomtune.data.user.source import Source
from idiomtune.errors import DataMissingError, UserError
from idiomtune.glossaries.tables import Glossary, read_glossary
from idiomtune.io.tables import read_rows
from tests.dictionaries import ENGLISH, sense, word, write_extract, write_wordnet
from tests.fake_hub import QuietServer
from tests.own_data import write, write_lines
from tests.programs import refused


def made(tmp_path: Path, *arguments: str, name: str = "idioms.tsv") -> Glossary:
    run_program("glossary", [*arguments, f"output={tmp_path / name}", "overwrite=true"])
    return read_glossary([tmp_path / name])


def not_made(
    named: str, sources: Any, tmp_path: Path, error: type[UserError] = UserError, **options: Any
) -> str:
    """The message of an error that names this; no file is written."""
    caught = refused(lambda: it.glossary(sources, tmp_path / "refused.tsv", **options), named, error=error)
    assert not (tmp_path / "refused.tsv").exists()
    return str(caught)


def test_wiktionary(tmp_path: Path) -> None:
    extract = write_extract(tmp_path / "words.jsonl.gz")
    glossary = made(tmp_path, "from=wiktionary", f"path={extract}")
    assert glossary.senses == {
        "kick the bucket": ["die", "stop working"],
        "kick the pail": ["die", "stop working"],
        "kick the can": ["die", "stop working"],
        "buy the farm": ["die"],
        "still waters run deep": ["Quiet people think much"],
    }
    assert glossary.forms == {
        "kick the bucket": ["kicks the bucket", "kicked the bucket"],
        "kick the pail": ["kicked the pail"],
    }
    rows = [row.values for row in read_rows(tmp_path / "idioms.tsv")]
    assert [row["sense"] for row in rows][:2] == ["1", "2"]
    about = {(row["language"], row["source"], row["licence"]) for row in rows}
    assert about == {("en", "Wiktionary", "cc-by-sa-4.0")}
    assert glossary.describe()["licences"] == ["cc-by-sa-4.0"], "what runs, models and cards record"
    every = made(tmp_path, "from=wiktionary", f"path={extract}", "all_senses=true")
    assert every.senses["red planet"] == ["A planet that is red"]
    assert len(every.senses["kick the bucket"]) == 3


def test_forms_of_the_dictionary_and_only_those_that_occur(tmp_path: Path) -> None:
    """No rule of English knows that "perdeu" is a form of "perder"."""
    content = "Ele perdeu o barco.\nEu perco o barco!\nPerderam o barco.\nEla viu uma estrela.\n"
    texts = write(tmp_path / "texts.txt", content)
    extract = write_extract(tmp_path / "a.jsonl")
    glossary = made(tmp_path, "from=wiktionary", "language=pt", f"path={extract}", f"in={texts}")
    assert list(glossary.senses) == ["perder o barco"]
    assert glossary.forms["perder o barco"] == ["perco o barco", "perdeu o barco", "perdendo o barco"]
    (row,) = (row.values for row in read_rows(tmp_path / "idioms.tsv"))
    assert row["texts"] == "2"
    read = glossary.meanings().insert("Ele perdeu o barco.")[0]
    assert read == "Ele perdeu o barco (miss the boat)."
    not_made("in=", "wiktionary", tmp_path, texts=["Nothing of it."], path=extract)


def test_expressions_that_say_what_they_mean_are_left_out(tmp_path: Path) -> None:
    rows = "tie the knot\tget married\nwedding anniversary\tanniversary of a wedding"
    source = write(tmp_path / "two.tsv", f"expression\tmeaning\n{rows}")
    assert list(made(tmp_path, f"from={source}", "max_similarity=0.6").senses) == ["tie the knot"]
    not_made("max_similarity", source, tmp_path, max_similarity=0)


def test_phrases_of_function_words_are_left_out() -> None:
    assert not any(map(is_expression, ("to the", "want to", "as well", "one's own", "bucket")))
    assert all(map(is_expression, ("o que é", "red-handed", "in the bag")))


def test_wordnet(tmp_path: Path) -> None:
    """Several senses in their order, most used parts of speech first; no names, no species."""
    folder = write_wordnet(tmp_path / "dict")
    glossary = made(tmp_path, "from=wordnet", f"path={folder}")
    assert glossary.senses == {
        "red herring": [
            "any diversion intended to distract attention",
            "a dried and smoked herring",
            "in the manner of a red herring",
        ],
        "smoked herring": ["a dried and smoked herring"],
        "Dutch courage": ["courage resulting from intoxication"],
        "kick the bucket": ["pass from physical life"],
        "blow one's nose": ["expel mucus"],
        "over the moon": ["extremely happy"],
    }
    assert glossary.forms == {"blow one's nose": ["blew one's nose", "blows one's nose"]}
    assert glossary.describe()["sources"] == ["WordNet 3.0"]
    header = (folder / "data.noun").read_text().replace("WordNet 3.0", "Open English WordNet")
    (folder / "data.noun").write_text(header)
    assert made(tmp_path, "from=wordnet", f"path={folder}").describe()["licences"] == ["cc-by-4.0"]


def test_several_sources_in_order_of_preference(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = "Kick the Bucket,stop living\nspill the beans,tell a secret\n,nothing\nas well,x\n"
    table = write(tmp_path / "mine.csv", f"idiom,definition\n{rows}")
    paths = f"path=[{table},{write_wordnet(tmp_path / 'dict')}]"
    columns = "columns={expression:idiom,meaning:definition}"
    given = ("from=[files,wordnet]", paths, columns, "licence=cc0-1.0")
    glossary = made(tmp_path, *given, name="idioms.parquet")
    assert glossary.senses["Kick the Bucket"] == ["stop living"]
    assert {"spill the beans", "red herring"} < glossary.senses.keys()
    assert "kick the bucket" not in glossary.senses
    assert glossary.describe()["licences"] == ["WordNet License", "cc0-1.0"]
    assert "row 4 is skipped: field 'idiom'" in caplog.text
    not_made("path", ["wordnet", "files"], tmp_path, path="x")


def test_tables_and_data_sets_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their own names of columns; a data set is recorded with its commit."""
    rows = [{"idiom": "spill the beans", "definition": "tell a secret", "forms": "spilt the beans; "}]
    columns = {"expression": "idiom", "meaning": "definition"}
    data = Source("hf:someone/idioms:train", None, "c0ffee", rows)
    with monkeypatch.context() as patched:
        patched.setattr("idiomtune.programs.glossary.find_sources", lambda *_: [data])
        made = it.glossary(data.name, tmp_path / "a.tsv", columns=columns, licence="cc0-1.0")
    facts = read_glossary([made]).describe()
    assert (facts["sources"], facts["licences"]) == (["hf:someone/idioms:train@c0ffee"], ["cc0-1.0"])
    table = write_lines(tmp_path / "mine.jsonl", [rows[0] | {"licence": "mit"}])
    made = it.glossary(str(table), tmp_path / "b.tsv", columns=columns, licence="cc0-1.0")
    assert read_glossary([made]).forms == {"spill the beans": ["spilt the beans"]}
    assert read_glossary([made]).describe()["licences"] == ["mit"]


def test_a_table_keeps_what_its_rows_say(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also when the command reads a glossary that it wrote, and from JSON: expression → meaning."""
    rows = [
        "Amtsschimmel\tB\u00fcrokratie\tde\tno\tEr wiehert.\tAmtsschimmels|Amtsschimmeln\tmine\tCC0\tyes",
        "L\u00f6ffel abgeben\tsterben\t\tgive a spoon\t\t\t\t\tyes",
        "the\tarticle\ten\t\t\t\t\t\tyes",
        "loswerden\tfortschaffen\tde\t\t\t\t\t\tno",
        "amtsschimmel\tb\u00fcrokratie\tde\t\t\t\t\t\tyes",
    ]
    header = "expression\tmeaning\tlanguage\tliteral\texample\tforms\tsource\tlicence\tkeep"
    table = write(tmp_path / "mine.tsv", "\n".join([header, *rows]) + "\n")
    path = it.glossary(str(table), tmp_path / "a.tsv", licence="mit", language="nds")
    written = [dict(row.values) for row in read_rows(path)]
    facts = ("expression", "language", "literal", "example", "forms", "source", "licence")
    assert [tuple(row[name] for name in facts) for row in written] == [
        ("Amtsschimmel", "de", "no", "Er wiehert.", "Amtsschimmels; Amtsschimmeln", "mine", "CC0"),
        ("L\u00f6ffel abgeben", "nds", "give a spoon", "", "", str(table), "mit"),
    ]
    warnings = " ".join(r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert all(name in warnings for name in ("'the'", "'amtsschimmel'"))
    assert it.glossary(str(path), tmp_path / "b.tsv").read_bytes() == path.read_bytes()
    terms = write(tmp_path / "terms.json", '{"Amtsschimmel": "B\u00fcrokratie", "in spe": ["bald", "dann"]}')
    (first, *_, last) = read_rows(it.glossary(str(terms), tmp_path / "c.csv"))
    assert (first.values["language"], last.values["meaning"], last.values["sense"]) == ("", "dann", "2")


def test_bad_lines_are_named_and_there_is_a_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spoiled = json.dumps(word("bite the bullet", sense("x", "slang")) | {"senses": "idiomatic"})
    bad = ['{"word": "cut', spoiled]
    extract = write_extract(tmp_path / "a.jsonl", [ENGLISH[0], *bad, ENGLISH[4]])
    glossary = made(tmp_path, "from=wiktionary", f"path={extract}", "bad_rows=2")
    assert list(glossary.senses) == ["kick the bucket", "buy the farm"]
    assert "line 2 is skipped" in caplog.text
    assert "line 3 is skipped: field 'senses'" in caplog.text
    message = not_made("bad_rows=1", "wiktionary", tmp_path, path=extract, bad_rows=1)
    assert f"{extract}, line 3" in message
    cut = write_extract(tmp_path / "cut.jsonl.gz")
    cut.write_bytes(cut.read_bytes()[:-20])
    not_made("gzip", "wiktionary", tmp_path, path=cut)


# ---------------------------------------------------------------- downloads


class Server:
    """Serves one file, and breaks off answers.

    Attributes:
        breaks: after how many bytes each of the next answers ends.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.breaks: list[int] = []
        self.num_answers = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                outer.num_answers += 1
                self.send_response(200)
                self.send_header("Content-Length", str(len(outer.content)))
                self.end_headers()
                end = outer.breaks.pop(0) if outer.breaks else len(outer.content)
                self.wfile.write(outer.content[:end])

        self.server = QuietServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/words.jsonl"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path / "cache"))
    server = Server(write_extract(tmp_path / "a.jsonl").read_bytes())
    yield server
    server.server.shutdown()
    server.server.server_close()


def test_an_interrupted_download_is_tried_again(server: Server, tmp_path: Path) -> None:
    server.breaks = [100]
    glossary = made(tmp_path, "from=wiktionary", f"path={server.url}")
    file = tmp_path / "cache" / "wiktionary" / "words.jsonl"
    assert file.read_bytes() == server.content
    (source,) = glossary.describe()["sources"]
    assert re.fullmatch(r"Wiktionary \(kaikki\.org, 20\d\d-\d\d-\d\d\)", source)
    made(tmp_path, "from=wiktionary", f"path={server.url}")
    assert server.num_answers == 2, "it is downloaded once"


def test_a_command_gives_up_and_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.breaks = [500, 100]
    assert server.url in not_made("path=", "wiktionary", tmp_path, DataMissingError, path=server.url)
    assert not [*(tmp_path / "cache" / "wiktionary").iterdir()]


def test_what_is_no_extract_is_refused(server: Server, tmp_path: Path) -> None:
    server.content = b"<!DOCTYPE html><html><body>Please log in.</body></html>"
    not_made(server.url, "wiktionary", tmp_path, DataMissingError, path=server.url)
    assert not (tmp_path / "cache" / "wiktionary" / "words.jsonl").exists()
    not_made("language=xx", "wiktionary", tmp_path, language="xx")
    not_made("missing.jsonl", "wiktionary", tmp_path, path="missing.jsonl")
    not_made("fi", "wiktionary", tmp_path, path=write_extract(tmp_path / "a.jsonl"), language="fi")
