"""Where the public data sets are published, and what their files are known by.

A file is fetched from a commit rather than from a branch, so that it is the same file for everybody and every
day. Where its SHA-256 is known, nothing else is accepted under its name; where it is not, what comes must at
least be a table with its columns, and the sum of the first download counts from then on.

Sums are those of the public files as they were when this project's results were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PublishedFile:
    """A file of a public repository.

    Attributes:
        revision: the commit that it is fetched from; `HEAD` where no commit is known to hold it.
        sha256: of its content, in hexadecimal; None where it is not known.
        columns: of a table whose sum is not known: those that it must have.
        path: the file's path at that commit, where it was another then.
    """

    revision: str
    sha256: str | None = None
    columns: tuple[str, ...] = ()
    path: str | None = None


@dataclass(frozen=True)
class GitHubData:
    """A data set on GitHub: its repository, and its files by their paths there."""

    repo: str
    files: Mapping[str, PublishedFile]


@dataclass(frozen=True)
class HubData:
    """A data set on the Hugging Face Hub.

    Attributes:
        revision: a commit or a branch. All files are fetched from the commit that it means at the time.
        revision_by: the environment variable that names another one; its files then have no known sums.
        sha256: of files by their paths; others have no known sum.
    """

    repo: str
    revision: str
    revision_by: str
    sha256: Mapping[str, str] = field(default_factory=dict)


_SEMEVAL_DEV = "bef04f0c95e1652d2d8d15bf41ca1b04adbc871f"
_SEMEVAL_TEST = "460ef20f62eba560bb4d7c5b87434ddf29095dee"

SEMEVAL2022 = GitHubData(
    "H-TayyarMadabushi/SemEval_2022_Task2-idiomaticity",
    {
        "SubTaskB/TrainData/train_data.csv": PublishedFile(
            _SEMEVAL_DEV, "484463ceb7170451876922f2051e7b0d56614520b56886b9b3cd884823c303bb"
        ),
        "SubTaskB/EvaluationData/dev.csv": PublishedFile(
            _SEMEVAL_DEV, "f7a36a4077e3c979b45d3be97732ebd591268ed15c6a7996c806e43ca4b6c4da"
        ),
        "SubTaskB/EvaluationData/dev.gold.csv": PublishedFile(
            _SEMEVAL_DEV, "69c724ea45a82e0fd6dc76a18332be5a2fc6ee08af246470b7f2c6e59ddfd511"
        ),
        "SubTaskB/EvaluationData/dev.submission_format.csv": PublishedFile(
            _SEMEVAL_DEV, "50fef75276ac48cb35db46a219a962a7b506c96ca1b7d3791672427cb5141380"
        ),
        "SubTaskB/EvaluationData/eval.csv": PublishedFile(
            _SEMEVAL_DEV, "488827fb64815e3eaf6eed38357b4bc4b961644a2e4889b241f85e5a39dbf530"
        ),
        "SubTaskB/EvaluationData/eval.submission_format.csv": PublishedFile(
            _SEMEVAL_DEV, "9d1c668bd81c6cb463a5b1222f26f40a54da053f74c3038cea2cb7f1350b7125"
        ),
        "SubTaskB/TestData/test.csv": PublishedFile(
            _SEMEVAL_TEST, "4bc8379419f748f62a3e978b05b20a3bf344b6357781807935a3717151fe8d56"
        ),
        "SubTaskB/TestData/train_one_shot.csv": PublishedFile(
            _SEMEVAL_TEST, "c3a19617d4b3153008000e46028964a9a48cac5507bf86d236e09c452390c984"
        ),
        "SubTaskB/TestData/test_submission_format.csv": PublishedFile(
            "1771a637e96722289194ae37e3effacf23ce8d19",
            "ae6cc6c7cbff05d26822de953bffff3a6a1d356a857f3dbf5198a83241341efd",
        ),
    },
)

_NCIMP_TABLES = "00e34dda54912e048adb08c7a6ecb49c5b79f7f6"
_NCIMP_SENTENCES = PublishedFile("HEAD", columns=("compound", "original sentence", "original sentence_tag"))

NCIMP = GitHubData(
    "risehnhew/Finding-Idiomaticity-in-Word-Representations",
    {
        "dataset/human_compositionality scores.xlsx": PublishedFile(
            "425c397338e803c98cf27aa143a2194f21c1d721",
            "09589faf25fcdf7f55b018efcac1e8059ae19f0afe3a8d9588973f5eddb19838",
        ),
        "dataset/EN/neutral.csv": PublishedFile(
            _NCIMP_TABLES, "4e93142734aee84d18b91eb5c4c934ce44be163cad5a69b630ab2ec6313570d4"
        ),
        "dataset/PT/neutral.csv": PublishedFile(
            _NCIMP_TABLES, "11e18b9d5920abcb6cd73e38435dba5ae6751d7697fac994ee860538bd23662f"
        ),
        "dataset/PT/naturalistics_examplesent1.csv": PublishedFile(
            _NCIMP_TABLES, "cd61ce72c5c713cfaa8218038771a72d0e7753578722eafc63ca4ed6d55920f6"
        ),
        "dataset/PT/naturalistics_examplesent2.csv": PublishedFile(
            _NCIMP_TABLES, "2a28a938daa0950d7e75f0a5a14065ccec57bab463d0d14c91663dd4a1748152"
        ),
        "dataset/PT/naturalistics_examplesent3.csv": PublishedFile(
            _NCIMP_TABLES, "760d958c09734d56d64b27200baf993fce2048b96545acd1c61349940cc48413"
        ),
        **{f"dataset/EN/naturalistics_examplesent{i}.csv": _NCIMP_SENTENCES for i in (1, 2, 3)},
    },
)

_ASTITCH_USAGES = "41a640d9525f4fd02157af6d79a01d9adc206d73"
_ASTITCH_FOLDER = "Dataset/Task1/SubTaskA/EN/ContextExcluded_IdiomIncluded"
_ASTITCH_SENSES = "Dataset/Extended_Noun_Compound_Senses_Dataset"

ASTITCH = GitHubData(
    "H-TayyarMadabushi/AStitchInLanguageModels",
    {
        f"{_ASTITCH_FOLDER}/train_zero_shot.csv": PublishedFile(
            _ASTITCH_USAGES, "c00ba8005775a1741f04f5ac8865154b39c7187172037e6d8e650e4c115c4cb4"
        ),
        f"{_ASTITCH_FOLDER}/train_one_shot.csv": PublishedFile(
            _ASTITCH_USAGES, "1cd65cd2a88db5165145e3897929e277b4410c2605be0c311216c017e336d00c"
        ),
        f"{_ASTITCH_FOLDER}/train_few_shot.csv": PublishedFile(
            _ASTITCH_USAGES, "6188b26ff94179e111aedeb46acab8835859460e3c216e12b82f3df218db2056"
        ),
        f"{_ASTITCH_FOLDER}/dev.csv": PublishedFile(
            _ASTITCH_USAGES, "be12f778d0cad2ba33217319eda8f66ca1c21360672473c094fd1becb3a64af0"
        ),
        f"{_ASTITCH_FOLDER}/test.csv": PublishedFile(
            _ASTITCH_USAGES, "9682af47aa9844a4fff960b93c56d91e5802291e25315781a288329c6d57bbd4"
        ),
        f"{_ASTITCH_SENSES}/EN_Extended_Noun_Compound_Senses_Dataset.csv": PublishedFile(
            "b269f245e96df756c80ea19aec1e7a97b2b3b862",
            "bb02e669a83b7b8a9b8a1f970d65d7029de7bb54f35a7d715a9abfc4382808e8",
            path=f"{_ASTITCH_SENSES}/EN_Extended_Noun_Compound_Paraphrase_Dataset.csv",
        ),
    },
)

PIE = GitHubData(
    "zhjjn/MWE_PIE",
    {
        "data_cleaned.csv": PublishedFile(
            "6c985dc3e9d195e5164384773f6c16674822dd3a",
            columns=(
                *("Idiom", "Sense", "Idiomatic_Sent", "Literal_Sent"),
                *("Idiomatic_Label", "Literal_Label"),
            ),
        )
    },
)

IDIOLINK = HubData(
    "Intellexus/IdioLink",
    revision="main",
    revision_by="IDIOM_IDIOLINK_REVISION",
    sha256={
        "data/train/indexes.json": "9f43e6283f1b6848637402b8ce3c9ca33d4368be1b140a44d126dc9f4bbae802",
        "data/train/queries.json": "4d812bec88305b65193995edca2072601d23e00a12abb68af23c5ff8453a21f7",
        "data/train/triplets_train_full.jsonl": (
            "fd1af6e3f25ae709574145d644548dc31ac1cb56396f1edb8439c194fc6ed054"
        ),
        "data/train/triplets_train_span.jsonl": (
            "392be542db3588f02ed22cf8c72947987195cc272817fb0109ba8d5606f63481"
        ),
        "data/val/indexes.json": "6e6e014bc3db4b2acfd06c2aef7492e4ed5a1a36e8038065a1eefa4f522278dc",
        "data/val/queries.json": "7f3db8377ad83d14880afd346aaf016eececf5f166aec7e74734048ed3a43538",
        "data/val/triplets_val_full.jsonl": (
            "6fd9e86680fa3edab8c9bfd6800c49f653cbf2a316b924a23ec9b3ac0cc20b79"
        ),
    },
)
