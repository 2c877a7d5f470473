"""Where the embeddings of the real data stay from one test run to the next."""

import pytest

from tests.programs import ROOT


@pytest.fixture
def figures_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's cache of the tests on published figures: `build/figures` (scored with `keep=True`).

    A file there is of one model, one list of texts, one version of the encoder's code and of its packages,
    and one kind of processor (`test_kept_embeddings.py`): whoever changes what decides an embedding computes
    the figures anew. To delete the folder is always safe.
    """
    monkeypatch.setenv("IDIOM_CACHE", str(ROOT / "build" / "figures"))
