"""What replaces the transformer in an exported model: an ONNX graph, or a table of token vectors.

With one of them as its first module an encoder embeds sentences and spans, and reads expressions, as it does
with a transformer. Neither can be trained.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from sentence_transformers.util import import_from_string
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from train.errors import UserError
from train.io.files import fingerprint
from train.io.records import read_json

ONNX_FILE = "onnx/model.onnx"  # where sentence-transformers looks for it, too
_OURS = "sentence_transformers."


class TokenModel(Module):
    """Token ids → `token_embeddings` (B, T, D), without a transformer.

    Attributes:
        tokenizer: of transformers, with character offsets.
        max_seq_length: tokens kept of a text; None = all.
        do_lower_case: texts are lower-cased before they are read.
    """

    tokenizer: Any
    max_seq_length: int | None = None
    do_lower_case: bool = False

    @property
    def auto_model(self) -> NoReturn:
        """Raises UserError: whoever asks for the transformer is to train or to change it."""
        raise UserError(
            "this model is an export (ONNX, or a table of token vectors), which can be neither trained nor "
            "changed: name the model that it was made of"
        )

    def save(self, *_: Any, **__: Any) -> None:
        """Raises UserError."""
        self.auto_model  # noqa: B018


class OnnxTokens(TokenModel):
    """The ONNX graph in a model's folder, computed by onnxruntime on the CPU.

    Raises:
        UserError: if onnxruntime is not installed, or cannot read the file.
    """

    config_keys: ClassVar[list[str]] = ["digest"]  # type: ignore[misc]

    def __init__(self, folder: Path) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        try:
            import onnxruntime
        except ImportError:
            raise UserError(
                f"model {folder} is an ONNX export, which needs onnxruntime: pip install 'idiomtune[onnx]'"
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._file = folder / ONNX_FILE
        self._session = onnxruntime.InferenceSession(self._file, options, providers=["CPUExecutionProvider"])
        widths = {given.name: given.shape[-1] for given in self._session.get_outputs()}
        if "token_embeddings" not in widths:
            raise UserError(
                f"gives {', '.join(widths)} and no token_embeddings: make it by train.export", file=self._file
            )
        self._width = int(widths["token_embeddings"])
        self._inputs = [given.name for given in self._session.get_inputs()]
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.max_seq_length = self.tokenizer.model_max_length
        settings = folder / "sentence_bert_config.json"
        self.do_lower_case = settings.is_file() and bool(read_json(settings).get("do_lower_case"))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        given = {name: features[name].numpy() for name in self._inputs}
        (tokens,) = self._session.run(["token_embeddings"], given)
        return dict(features, token_embeddings=torch.from_numpy(tokens))

    def get_embedding_dimension(self) -> int:
        return self._width

    @property
    def digest(self) -> str:
        """SHA-256 of the graph, and of its weights where these have a file of their own (beyond 2 GiB).

        None of them is in a tensor of ours.
        """
        return " ".join(fingerprint(file) for file in sorted(self._file.parent.iterdir()))


class StaticTokens(TokenModel):
    """A table of token vectors (V, D): each token's embedding is its own, whatever is next to it.

    Args:
        static: the library's module; the mean of its rows is what it gives for a text.

    Raises:
        UserError: if the tokenizer has no special token that could fill up batches.
    """

    def __init__(self, static: StaticEmbedding) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        weight = static.embedding.weight.detach()
        self.table: nn.Embedding = nn.Embedding.from_pretrained(weight, freeze=True)  # type: ignore[no-untyped-call]
        self.tokenizer = bare_tokenizer(static.tokenizer)

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        return dict(features, token_embeddings=self.table(features["input_ids"]))

    def get_embedding_dimension(self) -> int:
        return int(self.table.embedding_dim)


def bare_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer as a table of token vectors needs it: it adds no special tokens, and cuts nothing.

    Raises:
        UserError: if it has no special token at all: one is needed to fill up batches.
    """
    content = json.loads(tokenizer.to_str())
    bare = Tokenizer.from_str(json.dumps(content | {"post_processor": None}))
    bare.no_padding()
    bare.no_truncation()
    special = [token.content for token in bare.get_added_tokens_decoder().values() if token.special]
    if not special:
        raise UserError("the model's tokenizer has no special token, which batches of texts need for padding")
    padding = next((token for token in special if "pad" in token.lower()), special[0])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bare, pad_token=padding, model_input_names=["input_ids", "attention_mask"]
    )


def is_onnx_export(path: str) -> bool:
    """Whether a folder holds an ONNX graph, and no weights for torch next to it."""
    folder = Path(path)
    weights = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
    return (folder / ONNX_FILE).is_file() and not weights


def load_onnx_export(path: str) -> SentenceTransformer:
    """The model in the folder of an ONNX export.

    Raises:
        UserError: if it names modules that are not sentence-transformers' own, or the graph cannot be read.
    """
    folder = Path(path)
    listed = read_json(folder / "modules.json")
    modules: list[nn.Module] = [OnnxTokens(folder)]
    for entry in listed[1:]:
        if not entry["type"].startswith(_OURS):
            raise UserError("is not a module of sentence-transformers", file=folder, field=entry["type"])
        module: Any = import_from_string(entry["type"])
        modules.append(module.load(str(folder), subfolder=entry["path"]))
    settings = read_json(folder / "config_sentence_transformers.json")
    return SentenceTransformer(
        modules=modules,
        prompts=settings.get("prompts"),
        default_prompt_name=settings.get("default_prompt_name"),
        similarity_fn_name=settings.get("similarity_fn_name"),
        device="cpu",
    )


def with_token_table(model: SentenceTransformer) -> SentenceTransformer:
    """A model of static embeddings, whose tokens can also be pooled by themselves."""
    static, *others = model
    assert isinstance(static, StaticEmbedding)
    tokens = StaticTokens(static)
    modules: list[nn.Module] = [
        tokens,
        Pooling(tokens.get_embedding_dimension(), pooling_mode="mean"),
        *others,
    ]
    return SentenceTransformer(
        modules=modules,
        prompts={name: prompt for name, prompt in model.prompts.items() if prompt is not None},
        similarity_fn_name=model.similarity_fn_name,
        device=str(model.device),
    )
