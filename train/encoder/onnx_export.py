"""A model as an ONNX graph, by torch's exporter; its weights as 8-bit integers, by onnxruntime."""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from train.encoder.encoder import Encoder
from train.encoder.kernels import SHORT_ATTENTION
from train.encoder.reading import Tokenizer
from train.encoder.token_models import ONNX_FILE
from train.errors import UserError
from train.io.hub import first_line

_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_TOLERANCE = 1e-3  # of an embedding's length
_PROBES = ("Yes.", "He broke the ice with a joke.", "The ship broke the ice in the harbour of the town.")
_LONG = 512  # tokens of one more: longer than the windows of most local attention
_OUTPUTS = ("token_embeddings", "sentence_embedding")


def check_packages(option: str) -> None:
    """Check that what an export needs is installed.

    Raises:
        UserError: naming the packages that are not.
    """
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise UserError(
            f"{option} needs {' and '.join(missing)}, not installed here: pip install 'idiomtune[onnx]'"
        )


class _Graph(nn.Module):
    """The model as ONNX has it: (input_ids, attention_mask[, token_type_ids]) → both kinds of embeddings."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor) -> tuple[Tensor, Tensor]:
        features: dict[str, Any] = dict(zip(_INPUTS, given, strict=False))
        for module in self.model:
            features = module(features)
        return features["token_embeddings"], features["sentence_embedding"]


def write_onnx(encoder: Encoder, folder: Path) -> None:
    """Write `onnx/model.onnx` into a folder: batch and length are free, the opset is torch's current one.

    Its outputs are `token_embeddings` (B, T, D), what is pooled, and `sentence_embedding` (B, D), pooled with
    all tokens and passed through all modules. The attention mask is over padding on the right.

    Raises:
        UserError: if torch cannot export the model.
    """
    features = Tokenizer(encoder.model).pad([[5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 8, 9]], torch.device("cpu"))
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    file = folder / ONNX_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    transformer: Any = encoder.transformer
    if transformer.config._attn_implementation == SHORT_ATTENTION:
        # It depends on the length of texts, which a graph leaves free.
        transformer.set_attn_implementation("sdpa")
    with _quiet(), torch.no_grad():
        try:
            torch.onnx.export(
                _Graph(encoder.model).eval(),
                tuple(features.values()),
                file,
                input_names=list(features),
                output_names=list(_OUTPUTS),
                dynamic_shapes=(tuple(free for _ in features),),
                external_data=False,  # beyond 2 GiB, where protobuf ends, it is external all the same
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            raise UserError(
                f"torch cannot export this model ({type(encoder.transformer).__name__}) as ONNX: "
                f"{first_line(error.__cause__ or error)}"
            ) from error


def check_onnx(encoder: Encoder, folder: Path) -> None:
    """Check that the graph in a folder embeds texts of several lengths as the model does.

    Raises:
        UserError: if an embedding differs by more than 1e-3 of its length.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / ONNX_FILE, providers=["CPUExecutionProvider"])
    read = encoder.model.tokenizer(list(_PROBES), truncation=True)["input_ids"]
    limit = min(encoder.reader.limit or _LONG, _LONG)
    long = encoder.model.tokenizer(" ".join(_PROBES * _LONG), truncation=True, max_length=limit)["input_ids"]
    for batch in (read, read[:1], [long]):
        features = Tokenizer(encoder.model).pad(batch, torch.device("cpu"))
        given = {entry.name: features[entry.name].numpy() for entry in session.get_inputs()}
        with torch.no_grad():
            wanted = _Graph(encoder.model).eval()(*(features[name] for name in given))
        mask = features["attention_mask"][..., None]
        for name, right, found in zip(_OUTPUTS, wanted, session.run(list(_OUTPUTS), given), strict=True):
            difference = right - torch.from_numpy(found)
            difference = difference * mask if name == _OUTPUTS[0] else difference
            part = float(difference.norm(dim=-1).max() / right.norm(dim=-1).min().clamp_min(1e-6))
            if not part <= _TOLERANCE:
                raise UserError(
                    f"the ONNX graph embeds otherwise than the model ({name} differ by {part:.1e} of their "
                    f"length): torch's exporter does not support {type(encoder.transformer).__name__} rightly"
                )


def quantize(folder: Path) -> None:
    """Make the weights of a folder's ONNX graph 8-bit integers, a scale for each channel.

    Activations are quantized as they come (dynamic quantization), so that no data is needed.

    Reference: https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    whole = folder / ONNX_FILE
    is_large = len(list(whole.parent.iterdir())) > 1  # weights in a file of their own
    with TemporaryDirectory(dir=folder) as work, _quiet():
        prepared, quantized = Path(work) / "prepared.onnx", Path(work) / "onnx" / whole.name
        quantized.parent.mkdir()
        quant_pre_process(whole, prepared, skip_symbolic_shape=True, save_as_external_data=is_large)
        quantize_dynamic(
            prepared,
            quantized,
            per_channel=True,
            reduce_range=True,  # 7 bits: nothing overflows on processors without VNNI, and less is lost
            weight_type=QuantType.QInt8,
            use_external_data_format=is_large,
        )
        shutil.rmtree(whole.parent)
        quantized.parent.rename(whole.parent)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the libraries' remarks on their own workings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
