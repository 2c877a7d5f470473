"""The models by name: each config is valid, the help lists them, docs/models.md says what they are."""

import re
from collections import Counter

import pytest

from idiomtune.config import ModelSettings, validate
from idiomtune.config.words import config_names
from idiomtune.encoder.loading import model_settings
from idiomtune.encoder.reading import prompts_of
from idiomtune.errors import UserError
from idiomtune.plugins.models import model_values
from idiomtune.requests import EmbeddingRequest
from tests.programs import ROOT

NAMES = [name for name in config_names("model") if name != "pretrained"]
ROWS = {
    cells[0].strip("`"): cells
    for line in (ROOT / "docs" / "models.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


def test_the_configs_are_valid() -> None:
    for name in NAMES:
        section = model_values(name)
        if (section["about"] or {}).get("remote_code") == "needed":
            with pytest.raises(UserError, match=r"model\.trust_remote_code=true"):
                validate(ModelSettings, section, section="model")
            section["trust_remote_code"] = True
        model = validate(ModelSettings, section, section="model")
        assert model.revision is None or re.fullmatch(r"[0-9a-f]{40}", model.revision), name


def test_the_page_names_all_models_of_the_papers() -> None:
    """IdioLink's write queries without an instruction as its code does: all bare, but for two."""
    others = {"nomic_v2_moe": "search_document: ", "gritlm_7b": "<|embed|>\n"}
    assert list(ROWS) == NAMES
    for name, (_, path, _, licence, own_code, papers) in ROWS.items():
        values = model_values(name)
        about = values["about"] or {}
        assert path.strip("`") == values["path"]
        assert (licence, own_code) == (about.get("licence", "not found"), about.get("remote_code", ""))
        if "IdioLink" in papers:
            assert [values["query_prompt"], values["document_prompt"]] == [others.get(name, "")] * 2, name
    counts = Counter(paper for cells in ROWS.values() for paper in cells[-1].split(", "))
    assert (counts["IdioLink"], counts["adaptive triplet"], counts["ε-compositionality"]) == (24, 3, 8)


def test_a_query_prompt_of_a_checkpoint_is_left_out() -> None:
    """Qwen3-Embedding publishes one; IdioLink's code writes it in no mode without an instruction."""
    published = {"query": "Instruct: Given a web search query\nQuery:", "document": ""}
    settings = model_settings("qwen3_0_6b", {})
    for query_prompt, expected in ((None, published["query"] + "a"), (settings.query_prompt, "a")):
        prompts = prompts_of(published, settings.model_copy(update={"query_prompt": query_prompt}))
        bare, asked = (EmbeddingRequest("a", role="query", instruction=i) for i in (None, "i"))
        assert prompts.render(bare) == (expected, None)
        assert prompts.render(asked) == ("Instruct: i\nQuery:a", None)
