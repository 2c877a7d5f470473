"""`idiomtune export`: what an export embeds, what its card says, and when there is none."""

from __future__ import annotations

import errno
import importlib
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

import idiomtune.commands.export
from idiomtune.config import ExportSettings, check
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.exports import check_onnx, quantize
from idiomtune.encoder.glossary import Meanings, UsageGate
from idiomtune.encoder.idiom_tokens import OnnxTokens, TokenModel
from idiomtune.encoder.sharding import compute_device
from idiomtune.errors import UserError
from idiomtune.io.files import parse_yaml
from idiomtune.programs import export as recipe
from idiomtune.programs.export import RECORD, export, source_of
from idiomtune.reports.screens import ExportComparison, Measured
from idiomtune.requests import Request
from tests.programs import ROOT
from tests.tiny_runs import composed

pytestmark = pytest.mark.slow

CUT = 16  # of the tiny model's 32 dimensions
TEXTS = [
    "Yes.",
    "He broke the ice with a joke.",
    "They had to break the ice, and to spill the beans, long before the ship came to the harbour at last.",
    "He made everybody relax.",
]
SPANS = ["Yes", "broke the ice", "spill the beans", "everybody relax"]
QUICK = [
    *("data=sample", "benchmark.idiolink.bm25_modes=[]", "benchmark.idiolink.query_modes=[sentence,span]"),
    *("model=pretrained", "model.tokens_per_forward=8192"),
]


@pytest.fixture(scope="module")
def idiomatic(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a token for an idiom, and prompts."""
    encoder = Encoder.from_pretrained(
        tiny_path, device="cpu", query_prompt="query: ", instruction_prompt="{instruction}: {query}"
    )
    encoder.add_idiom_tokens(["spill the beans"], start="random")
    folder = tmp_path_factory.mktemp("idiomatic") / "model"
    encoder.save(folder)
    return folder


def exported(model: Path, folder: Path, *options: str) -> Path:
    """`idiomtune export`, in this process."""
    idiomtune.commands.export.run(
        composed("export", *QUICK, f"model.path={model}", f"output={folder}", *options)
    )
    return folder


@pytest.fixture(scope="module")
def onnx(idiomatic: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ONNX export of it, cut to half its dimensions."""
    return exported(
        idiomatic, tmp_path_factory.mktemp("onnx") / "export", "format=onnx", f"truncate_dim={CUT}"
    )


@pytest.fixture(scope="module")
def static(idiomatic: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(
        idiomatic, tmp_path_factory.mktemp("static") / "export", "format=static", f"truncate_dim={CUT}"
    )


def settings_of(model: Path | str, folder: Path, *options: str) -> ExportSettings:
    named = [*QUICK, f"model.path={model}", f"output={folder}", *options]
    settings: ExportSettings = check(ExportSettings, composed("export", *named))
    return settings


def test_onnx_embeds_as_the_model(onnx: Path, idiomatic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By onnxruntime and tokenizers alone, as the example does it: any batch, any length."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "examples")])
    graph: Any = importlib.import_module("onnx_embed").OnnxModel(onnx)
    encoder = Encoder.from_pretrained(idiomatic, device="cpu")
    sentences = normalize(encoder.encode(TEXTS)[:, :CUT], dim=1).numpy()
    for batch in (TEXTS, TEXTS[:1], TEXTS[2:3], TEXTS[::-1] * 3):
        wanted = np.stack([sentences[TEXTS.index(text)] for text in batch])
        np.testing.assert_allclose(graph.encode(batch), wanted, atol=1e-5)
    read, tokens, _ = graph.run(TEXTS)
    for one, found, text in zip(read, tokens, TEXTS, strict=True):
        ids = [i for i, is_token in zip(one.ids, one.attention_mask, strict=True) if is_token]
        assert ids == encoder.reader.read([Request(text)])[0].tokens.input_ids
        with torch.no_grad():
            wanted = encoder.embed_tokens([ids])[0].numpy()
        np.testing.assert_allclose(found[: len(ids)], wanted, atol=1e-5)
    assert encoder.idiom_tokens is not None
    token = encoder.idiom_tokens.token_of["spill the beans"]
    assert encoder.model.tokenizer.get_vocab()[token] in read[2].ids


def test_the_encoder_reads_an_export(onnx: Path, idiomatic: Path) -> None:
    encoder, found = (Encoder.from_pretrained(path, device="cpu") for path in (idiomatic, onnx))
    assert found.dimension == CUT
    for spans in (None, SPANS):
        wanted = normalize(encoder.encode(TEXTS, spans)[:, :CUT], dim=1)
        torch.testing.assert_close(found.encode(TEXTS, spans), wanted, atol=1e-5, rtol=0)
    assert found.prompts == encoder.prompts
    assert isinstance(found.model[0], OnnxTokens)
    assert not list(onnx.glob("*.safetensors"))
    assert found.digest() != encoder.digest()
    assert compute_device(OnnxTokens(onnx)).type == "cpu"  # though none of its weights is torch's


def test_8_bit_weights_are_small_and_close(onnx: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(onnx, tmp_path / "int8")
    quantize(folder)
    small, whole = (path / "onnx" / "model.onnx" for path in (folder, onnx))
    assert small.stat().st_size < 0.5 * whole.stat().st_size
    before, after = (Encoder.from_pretrained(path, device="cpu").encode(TEXTS) for path in (onnx, folder))
    assert cosine_similarity(before, after).min() > 0.98
    assert not torch.equal(before, after)


def test_a_token_table_is_plain_sentence_transformers(static: Path) -> None:
    plain = SentenceTransformer(str(static), device="cpu")
    embeddings = torch.as_tensor(plain.encode(TEXTS))
    assert embeddings.shape == (len(TEXTS), CUT)
    encoder = Encoder.from_pretrained(static, device="cpu")
    torch.testing.assert_close(encoder.encode(TEXTS), embeddings, atol=1e-5, rtol=0)
    spans = encoder.encode(TEXTS, SPANS)
    # Without context a span is what its own words are, and an idiom is its token.
    torch.testing.assert_close(spans, torch.as_tensor(plain.encode(SPANS)), atol=1e-5, rtol=0)
    assert "IDspillthebeansID".lower() in [token.lower() for token in plain.tokenizer.encode(SPANS[2]).tokens]
    assert not list(static.glob("*.bin"))


@pytest.mark.parametrize("format_", ["onnx", "static"])
def test_the_card_has_both_scores_size_and_speed(format_: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(format_)
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    card = (folder / "README.md").read_text(encoding="utf-8")
    key = "idiolink/val/span/ndcg@10"
    assert f"| {key} | {record['baseline'][key]:.4f} | {record['scores'][key]:.4f} |" in card
    for what in ("size in MB", "texts per second", "1 point", "SAMPLE", f"format={format_}"):
        assert what in card
    assert "`idiom_tokens.json`" in card
    assert "`tokenizer.json` has the rules" in card
    assert record["meta"]["dimension"] == CUT
    assert not list(folder.parent.glob(".*"))


@pytest.mark.parametrize(("change", "said"), [(-0.0101, "LOST more than 1 point"), (-0.0099, "lost no more")])
def test_a_loss_of_more_than_a_point_is_told(change: float, said: str) -> None:
    keys = [f"idiolink/val/span/{metric}" for metric in ("ndcg@10", "r_precision")]
    before = {keys[0]: 0.6, keys[1]: 0.4, "idiolink/val/bm25_span/ndcg@10": 0.3}
    sides = (Measured(before, 10, 1.0), Measured({**before, keys[0]: 0.6 + change, keys[1]: 0.5}, 5, 2.0))
    compared = ExportComparison("m", "int8", 8, *sides, num_threads=1)
    assert said in compared.verdict
    assert f"{keys[0]} {change:+.4f}" in compared.verdict
    assert [cells[0] for cells in compared.table.rows[:-2]] == keys  # BM25 is no model's


def test_what_is_in_the_way_is_told_before_anything_is_computed(
    tmp_path: Path, tiny_path: Path, onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(match: str, *options: str, model: Path = tiny_path, output: Path = tmp_path / "new") -> None:
        with pytest.raises(UserError, match=match):
            export(settings_of(model, output, *options))

    refused("format: is needed: format=onnx")
    refused("format: .*int4", "format=int4")
    refused("truncate_dim", "format=static", "truncate_dim=0")
    refused("^truncate_dim=32: .*cannot be cut to 32: name 31 or fewer", "format=onnx", "truncate_dim=32")
    refused("name 32 or fewer", "format=static", "truncate_dim=33")
    refused("device: must be", "format=static", "device=cuda")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    for also in ((), ("overwrite=true",)):
        refused("contains something else", "format=static", *also, output=tmp_path / "full")
    refused("overwrite=true replaces it", "format=static", output=onnx)
    refused("own folder", "format=static", output=tiny_path)
    refused("own folder", "format=static", output=tiny_path / "export")
    assert not (tiny_path / "export").exists()
    refused("an export already", "format=static", model=onnx)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").touch()
    refused("no best/ yet", "format=static", model=tmp_path / "run")
    monkeypatch.setattr("idiomtune.encoder.exports.find_spec", lambda name: None if name == "onnx" else name)
    refused(r"needs onnx, .*pip install 'idiomtune\[onnx\]'", "format=int8")
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "full" / "thesis.txt").exists()


def test_a_full_disk_and_an_unknown_model_leave_nothing(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unscored(monkeypatch)
    failures = {
        "No space left.*nothing was exported": OSError(errno.ENOSPC, "No space left on device", "model.onnx"),
        r"cannot export this model \(BertModel\) as ONNX: no such thing": torch.onnx.OnnxExporterError(
            "no such thing"
        ),
    }
    for match, failure in failures.items():

        def fail(*_: Any, failure: Exception = failure, **__: Any) -> None:
            raise failure

        monkeypatch.setattr(torch.onnx, "export", fail)
        with pytest.raises(UserError, match=match):
            export(settings_of(tiny_path, tmp_path / "new", "format=onnx"))
    assert not list(tmp_path.iterdir())
    kept = tmp_path / "kept"
    kept.mkdir()  # empty, and the user's own: a folder that something is mounted on cannot be made anew
    with pytest.raises(UserError):
        export(settings_of(tiny_path, kept, "format=onnx"))
    assert list(tmp_path.iterdir()) == [kept]


def _random_vectors(encoder: Encoder) -> Tensor:
    tokenizer: Any = encoder.model.tokenizer
    return torch.randn(max(tokenizer.get_vocab().values()) + 1, encoder.dimension)


def unscored(
    monkeypatch: pytest.MonkeyPatch,
    notes: dict[bool, list[str]] | None = None,
    seen: list[Encoder] | None = None,
) -> None:
    """Have the recipe embed nothing to score it.

    Args:
        notes: on the scores, by whether they are on the export.
        seen: gets the encoders that would be scored.
    """

    def measured(_suite: Any, encoder: Encoder, _folder: Path) -> Measured:
        if seen is not None:
            seen.append(encoder)
        return Measured({}, 1, 1.0, (notes or {}).get(isinstance(encoder.model[0], TokenModel), []))

    monkeypatch.setattr(recipe, "Suite", lambda *_: None)
    monkeypatch.setattr(recipe, "_measured", measured)
    monkeypatch.setattr("idiomtune.encoder.exports.token_vectors", _random_vectors)


def test_what_is_replaced_stays_until_the_new_one_is_there(
    static: Path, tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unscored(monkeypatch)
    (tmp_path / "disk").mkdir()
    real = shutil.copytree(static, tmp_path / "disk" / "export")
    link = tmp_path / "link"
    link.symlink_to(real)
    before = (real / "model.safetensors").read_bytes()
    settings = settings_of(tiny_path, link, "format=static", "truncate_dim=8", "overwrite=true")
    replace = Path.replace

    def interrupted(path: Path, target: Path) -> Path:
        if path.name == real.name:
            assert not list(real.iterdir())  # the old one has made room
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            export(settings)
    assert (real / "model.safetensors").read_bytes() == before
    assert export(settings) == link
    assert link.is_symlink()
    encoder = Encoder.from_pretrained(real, device="cpu")
    assert encoder.dimension == 8
    for change in (lambda: encoder.transformer, lambda: encoder.save(tmp_path / "copy")):
        with pytest.raises(UserError, match="neither trained nor changed"):
            change()
    assert list(real.parent.iterdir()) == [real]


def test_a_table_has_no_prompts_but_the_models_instructions(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As many components as the model has dimensions; notes on the scores are on the card."""
    unscored(monkeypatch, {False: ["both", "cut"], True: ["both", "ALL EQUAL"]})
    named = ["model.query_prompt='query: '", "model.instruction_prompt='{instruction}: {query}'"]
    with caplog.at_level("INFO"):
        folder = export(settings_of(tiny_path, tmp_path / "new", "format=static", "truncate_dim=32", *named))
    assert "without 'query: '" in caplog.text
    encoder = Encoder.from_pretrained(folder, device="cpu")
    assert encoder.dimension == 32
    texts = ["broke the ice", "Find: broke the ice"]
    documents = encoder.encode(texts)
    torch.testing.assert_close(encoder.encode(texts[:1], role="query"), documents[:1])
    torch.testing.assert_close(encoder.encode(texts[:1], instruction="Find"), documents[1:])
    card = (folder / "README.md").read_text(encoding="utf-8")
    for line in ("both", "The model: cut", "This export: ALL EQUAL"):
        assert f"\n{line}\n" in card
    assert '"{instruction}: {query}"' in card
    command = card.split("```sh\n")[1].split("\n")[0]
    options = [word for word in shlex.split(command) if word.startswith("model.")]
    assert composed("export", *options)["model"]["query_prompt"] == "query: "
    assert str(tmp_path) not in card
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    assert record["meta"]["files"]


@pytest.mark.parametrize(("licence", "on_card"), [("cc-by-sa-4.0", "cc-by-sa-4.0"), ("", None)])
def test_both_are_scored_alike_and_a_glossary_counts_for_the_licence(
    licence: str, on_card: str | None, tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Encoder] = []
    unscored(monkeypatch, seen=seen)
    model = shutil.copytree(tiny_path, tmp_path / "model")
    (model / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    glossary = tmp_path / "my.tsv"
    rows = ["expression\tmeaning\tlicence", f"spill the beans\ttell a secret\t{licence}"]
    glossary.write_text("\n".join(rows) + "\n", encoding="utf-8")
    options = ["format=static", f"model.glossary=[{glossary}]", "model.span=raw"]
    folder = export(settings_of(model, tmp_path / "new", *options))
    assert [encoder.raw_spans for encoder in seen] == [True, True]
    card = (folder / "README.md").read_text(encoding="utf-8")
    head = parse_yaml(card.split("---\n")[1])
    assert head.get("license") == on_card
    assert "my.tsv" in card
    assert str(tmp_path) not in card  # where things lie on this machine
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    assert record["meta"]["glossary"]["form"] == "beside"
    assert str(glossary) in record["meta"]["files"]


def test_an_export_of_a_run_has_its_licence_and_base_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "step_4").mkdir(parents=True)
    about = {"licence": "MIT", "papers": []}
    config = composed("config", "model=pretrained", "model.path=org/base", "data=sample")
    config["model"]["about"] = about
    (run / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    (run / "run.json").write_text(
        json.dumps({"experiment": "default", "status": "finished"}), encoding="utf-8"
    )
    source = source_of(settings_of(run / "step_4", tmp_path / "new", "format=static"))
    assert (source.name, source.licence, source.repo_id) == ("run/step_4", "mit", "org/base")
    card = "---\nlicense: cc-by-sa-4.0\n---\n"  # that a person chose
    (run / "step_4" / "README.md").write_text(card, encoding="utf-8")
    assert source_of(settings_of(run / "step_4", tmp_path / "new", "format=static")).licence == "cc-by-sa-4.0"
    (run / "run.json").write_text(
        "{", encoding="utf-8"
    )  # damaged: its checkpoints can be exported all the same
    assert source_of(settings_of(run / "step_4", tmp_path / "new", "format=static")).name == "run/step_4"


def test_rows_of_the_table_are_the_components_of_tokens_as_texts_and_the_rare_weigh_more(
    static: Path, idiomatic: Path
) -> None:
    encoder = Encoder.from_pretrained(idiomatic, device="cpu")
    tokenizer: Any = encoder.model.tokenizer
    ids = [[tokenizer.cls_token_id, i, tokenizer.sep_token_id] for i in range(len(tokenizer))]
    with torch.no_grad():  # normalized, as the model's last module does it
        vectors = normalize(encoder.embed_tokens(ids).mean(1), dim=1)
    centred = vectors - vectors.mean(0)
    components = centred @ torch.linalg.svd(centred, full_matrices=False)[2][:CUT].T
    ranks = torch.arange(2, len(ids) + 2)  # of frequencies by Zipf's law
    weights = 1e-4 / (1e-4 + 1 / ranks / (1 / ranks).sum())
    wanted = components * weights[:, None]
    table = Encoder.from_pretrained(static, device="cpu").embed_tokens([list(range(len(ids)))])[0]
    torch.testing.assert_close(table.norm(dim=1), wanted.norm(dim=1), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(table @ table[7], wanted @ wanted[7], rtol=1e-2, atol=1e-8)


def test_a_damaged_export_and_what_is_none_are_named(onnx: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(onnx, tmp_path / "export")

    def refused(match: str, **options: Any) -> None:
        with pytest.raises(UserError, match=match):
            Encoder.from_pretrained(folder, device="cpu", **options)

    refused("model.bidirectional=true: .*no transformer", bidirectional=True)
    digest = OnnxTokens(folder).digest
    (folder / "onnx" / "model.onnx.data").write_bytes(b"weights")  # beyond 2 GiB they are there
    assert OnnxTokens(folder).digest != digest
    (folder / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    refused("could not load model|vocabulary")
    (tmp_path / "tokenizer.json").rename(folder / "tokenizer.json")
    (folder / "modules.json").unlink()
    refused("modules.json")
    (folder / "config_sentence_transformers.json").unlink()
    (folder / "pytorch_model.bin").touch()  # a graph beside a model's own weights
    refused("no safetensors")


def test_a_graph_that_errs_in_long_texts_alone_is_none(
    onnx: Path, idiomatic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one may that was traced with a short text."""
    cut = recipe._cut(Encoder.from_pretrained(idiomatic, device="cpu"), CUT)
    check_onnx(cut, onnx)
    transformer: Any = cut.model[0]
    right = transformer.forward

    def far(features: dict[str, Any], **options: Any) -> dict[str, Any]:
        features = right(features, **options)
        tokens = features["token_embeddings"]
        is_far = (torch.arange(tokens.shape[1]) >= 32).to(tokens)[:, None]
        return dict(features, token_embeddings=tokens * (1 + is_far))

    transformer.forward = far
    with pytest.raises(UserError, match="embeds otherwise than the model"):
        check_onnx(cut, onnx)
    # Nothing is exported that has not been checked.
    unscored(monkeypatch)
    monkeypatch.setattr(recipe, "write_onnx", lambda *_: None)
    monkeypatch.setattr(recipe, "check_onnx", lambda *_: check_onnx(cut, onnx))
    with pytest.raises(UserError, match="embeds otherwise than the model"):
        export(settings_of(idiomatic, tmp_path / "new", "format=onnx"))
    assert not list(tmp_path.iterdir())


def test_a_gate_needs_the_whole_embedding(tmp_path: Path, tiny: Encoder) -> None:
    tiny.meanings = Meanings({"spill the beans": ["tell a secret"]}, gate=UsageGate([0.1] * 32, 0.0))
    tiny.save(tmp_path / "gated")
    for option in ("format=static", "truncate_dim=8"):
        with pytest.raises(UserError, match=rf"^{option}: .*model.glossary_gate=false"):
            export(settings_of(tmp_path / "gated", tmp_path / "new", "format=onnx", option))
    tiny.meanings = tiny.meanings.override(gate=UsageGate([0.1] * 192, 0.0, (1, 2)))
    tiny.save(tmp_path / "layers")
    with pytest.raises(UserError, match=r"^format=onnx: .*hidden layers.*model.glossary_gate=false"):
        export(settings_of(tmp_path / "layers", tmp_path / "new", "format=onnx"))
