"""Loading what experts use beside the run's encoder: only safetensors, no code from the checkpoint."""

from __future__ import annotations

from typing import Any

import torch

from train.encoder.checks import check_report, check_vocabulary, check_weights, loading_reports
from train.encoder.loading import locate_checkpoint, silence_libraries, why_not_loaded
from train.errors import UserError


def load_pretrained(
    path: str, revision: str | None, model_class: Any, tokenizer_class: Any, *others: Any
) -> tuple[Any, ...]:
    """A model in float32, its tokenizer, and what else belongs to it, by the classes of transformers.

    Args:
        path: a local folder, or the name of a model on the Hugging Face Hub.
        revision: branch, tag or commit on the Hub.

    Raises:
        UserError: why it cannot be loaded, or that it is incomplete; the caller knows the option.
    """
    name, offline = locate_checkpoint(path, revision)
    options: dict[str, Any] = {
        "revision": revision,
        "trust_remote_code": False,
        "local_files_only": offline,
    }
    try:
        with silence_libraries(), loading_reports() as reports:
            model = model_class.from_pretrained(name, use_safetensors=True, dtype=torch.float32, **options)
            rest = [each.from_pretrained(name, **options) for each in (tokenizer_class, *others)]
    except MemoryError:
        raise
    except Exception as error:
        raise UserError(why_not_loaded(error)) from error
    for loaded, report in reports:
        check_report(name, loaded, report)
    check_weights(name, model)
    check_vocabulary(name, rest[0])
    return (model, *rest)
