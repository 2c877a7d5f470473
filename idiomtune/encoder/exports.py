"""A model in another form: an ONNX graph, with 8-bit weights if asked for, or a table of token vectors.

The graph is made by torch's exporter, its weights are made 8-bit integers by onnxruntime.

The table needs no transformer: for search where speed counts most. After Model2Vec (Tulkens and van Dongen,
2024, https://github.com/MinishLab/model2vec): each token is embedded alone, the principal components of all
of them are kept, and each is weighted by how rare it is (SIF: Arora et al., "A simple but tough-to-beat
baseline for sentence embeddings", ICLR 2017). Frequencies follow Zipf's law over the tokenizer's vocabulary,
whose order most tokenizers learn from them. Ours differs in that a token's vector is what the model itself
gives for a text of that token, by its own pooling.
"""

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
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor, nn

from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import SHORT_ATTENTION
from idiomtune.encoder.idiom_tokens import ONNX_FILE, bare_tokenizer
from idiomtune.encoder.loading import silence_libraries
from idiomtune.encoder.reading import Tokenizer
from idiomtune.encoder.saved_expressions import save_expressions
from idiomtune.errors import UserError
from idiomtune.io.hub import first_line
from idiomtune.io.terminal import progress_bar

log = logging.getLogger(__name__)

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
            expected = _Graph(encoder.model).eval()(*(features[name] for name in given))
        mask = features["attention_mask"][..., None]
        for name, right, ours in zip(_OUTPUTS, expected, session.run(list(_OUTPUTS), given), strict=True):
            difference = right - torch.from_numpy(ours)
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

    graph = folder / ONNX_FILE
    is_large = len(list(graph.parent.iterdir())) > 1  # weights in a file of their own
    with TemporaryDirectory(dir=folder) as work, _quiet():
        prepared, quantized = Path(work) / "prepared.onnx", Path(work) / "onnx" / graph.name
        quantized.parent.mkdir()
        quant_pre_process(graph, prepared, skip_symbolic_shape=True, save_as_external_data=is_large)
        quantize_dynamic(
            prepared,
            quantized,
            per_channel=True,
            reduce_range=True,  # 7 bits: nothing overflows on processors without VNNI, and less is lost
            weight_type=QuantType.QInt8,
            use_external_data_format=is_large,
        )
        shutil.rmtree(graph.parent)
        quantized.parent.rename(graph.parent)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the libraries' remarks on their own workings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


DIMENSIONS = 256  # as published
_SIF = 1e-4  # as published
_BATCH = 256  # tokens


def write_static(encoder: Encoder, folder: Path, dimensions: int | None = None) -> None:
    """Write a model of static embeddings, which plain sentence-transformers reads.

    Its tokenizer has the model's rules for expressions, and their tokens have vectors. Prompts that come
    before every query or document are left out: without context they would only be words that all share.

    Args:
        dimensions: of an embedding; None = 256, or as many as the model has.

    Raises:
        UserError: if the tokenizer cannot do without special tokens.
    """
    tokenizer = bare_tokenizer(encoder.model.tokenizer.backend_tokenizer)
    vectors = token_vectors(encoder)
    table = weighted(principal_components(vectors, dimensions or min(DIMENSIONS, vectors.shape[1])))
    static = StaticEmbedding(tokenizer, embedding_weights=table)
    left_out = [prompt for prompt in (encoder.prompts.query, encoder.prompts.document) if prompt]
    if left_out:
        log.info(
            "static: without %s, which without context would only be words that all texts share",
            " and ".join(map(repr, dict.fromkeys(left_out))),
        )
    prompts = {"query": "", "document": "", "instruction": encoder.prompts.instruction}
    model = SentenceTransformer(modules=[static, Normalize()], prompts=prompts, device="cpu")
    with silence_libraries():
        model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    save_expressions(folder, tokenizer, encoder.idiom_tokens, encoder.meanings)


def token_vectors(encoder: Encoder) -> Tensor:
    """(V, D), each token's embedding as a text of its own."""
    num_tokens = max(encoder.model.tokenizer.get_vocab().values()) + 1
    encoder.eval()
    pieces = []
    with progress_bar("tokens", num_tokens) as advance:
        for start in range(0, num_tokens, _BATCH):
            ids = range(start, min(start + _BATCH, num_tokens))
            pieces.append(encoder.embed_token_texts(ids).float().cpu())
            advance(len(ids))
    return torch.cat(pieces)


def principal_components(vectors: Tensor, dimensions: int) -> Tensor:
    """(V, `dimensions`), the vectors (V, D) less their mean, along the directions in which they vary most."""
    centred = vectors - vectors.mean(0)
    _, directions = torch.linalg.eigh((centred.T @ centred).double())  # ascending
    components: Tensor = centred @ directions.flip(1)[:, :dimensions].to(centred)
    return components


def weighted(vectors: Tensor) -> Tensor:
    """The vectors (V, D) times a / (a + p), with a token's probability p by its rank, after Zipf's law."""
    inverse_ranks = 1 / torch.arange(2, len(vectors) + 2, dtype=torch.float64)
    weights = _SIF / (_SIF + inverse_ranks / inverse_ranks.sum())
    return vectors * weights[:, None].to(vectors)
