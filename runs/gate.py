"""Makes a gate of meanings that comes with the project: idiomtune/glossaries/gates/<model>.json.

    python runs/gate.py minilm
    python runs/gate.py mpnet_base [<its folder, in place of the download>]

Fitted to MAGPIE ($IDIOM_DATA/magpie or the download) and the project's own sentences, without any idiom of
IdioLink's. MAGPIE's sentences are drawn with the seed 0, and the fit draws nothing. Prints how well gates
tell the usage of expressions that they were not fitted to, by five folds (docs/results/knowledge.md).
"""

from __future__ import annotations

import json
import sys

import numpy as np
from scipy.stats import rankdata

from idiomtune import Encoder
from idiomtune.data.usages import labelled_usages
from idiomtune.encoder.facts import weights_digest
from idiomtune.glossaries.tables import GLOSSARIES, read_glossary
from idiomtune.glossaries.usage_gate import GATES, fit_usage_gate, gate_examples, mean_embedding
from idiomtune.io.files import write_text
from idiomtune.io.terminal import log_to_stderr
from idiomtune.plugins.models import model_names

_FOLDS = 5


def main(model: str = "minilm", folder: str | None = None) -> None:
    """Print the figures of a model's gate, and write it.

    Args:
        model: its name in `conf/model/`.
    """
    if model not in model_names():
        sys.exit(f"{model}: there is no such model in conf/model/")
    log_to_stderr()
    encoder = Encoder.from_pretrained(folder or model, glossary=[])
    usages = labelled_usages(read_glossary([GLOSSARIES / "idiolink.tsv"]).senses, whole=True)
    features, labels, names, layers, bare_features, num_bare = gate_examples(encoder, usages)
    bare = np.arange(len(names)) >= len(names) - num_bare
    distinct, all_names = sorted(set(names)), names
    fold_of = dict(zip(np.random.default_rng(0).permutation(distinct), range(len(distinct)), strict=True))
    folds = np.array([fold_of[name] % _FOLDS for name in names])
    idiomatic, predicted = np.array(labels), np.zeros(len(names))
    for fold in range(_FOLDS):
        others = np.flatnonzero(folds != fold).tolist()
        own = [labels[i] for i in others], [names[i] for i in others]
        gate = fit_usage_gate(features[others], *own, layers, bare_features[others], int(bare[others].sum()))
        held_out = np.flatnonzero(folds == fold)
        predicted[held_out] = gate.usage(
            gate.terms(features[held_out]), gate.terms(bare_features[held_out])
        ).numpy()
    print(f"{num_bare} uses without context: {100 * (predicted[bare] > 0.5).mean():.0f}% read as idiomatic")
    idiomatic, predicted, names = idiomatic[~bare], predicted[~bare], names[: len(names) - num_bare]
    num_own = sum(usage.id.startswith("own_") for usage in usages)  # the last ones
    right = (predicted > 0.5) == idiomatic
    for source, rows in (("MAGPIE", slice(None, -num_own)), ("own sentences", slice(-num_own, None))):
        ranks, own = rankdata(predicted[rows]), idiomatic[rows]
        n = own.sum()
        auc = (ranks[own].sum() - n * (n + 1) / 2) / (n * (~own).sum())
        of = np.array(names[rows])
        means = [right[rows][of == name].mean() for name in set(of)]
        print(
            f"{source}: {len(own)} sentences of {len(means)} expressions, folds: AUC {auc:.3f}; right, mean "
            f"over expressions {100 * np.mean(means):.1f}%"
        )
    for low in np.arange(0, 1, 0.2):
        rows = (predicted >= low) & (predicted < low + 0.2)
        share = 100 * idiomatic[rows].mean()
        print(f"usage {low:.1f} to {low + 0.2:.1f}: {share:.0f}% of {rows.sum()} are idiomatic")
    gate = fit_usage_gate(features, labels, all_names, layers, bare_features, num_bare)
    gate = gate._replace(mean=mean_embedding(encoder, usages))
    about = {
        "model": model,
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "weights": weights_digest(encoder),
    }
    write_text(GATES / f"{model}.json", json.dumps(about | {"gate": gate._asdict()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
