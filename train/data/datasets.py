"""The data sets that the project knows. Where each is published stands in its module."""

from train.declarations.dataset import DatasetType

IDIOLINK = DatasetType(
    "idiolink",
    option="root",
    title="IdioLink",
    licence="cc-by-nc-sa-4.0",  # of its repository, the stricter of two
    hub="Intellexus/IdioLink",
    allows_custom=True,
    in_sample=True,
)
SEMEVAL2022 = DatasetType(
    "semeval2022_task2b",
    option="semeval2022",
    title="SemEval-2022 Task 2B",
    licence="gpl-3.0",
    in_sample=True,
)
NCIMP = DatasetType("ncimp", title="NCIMP", in_sample=True)
ADMIRE = DatasetType("admire", title="AdMIRe (SemEval-2025 Task 1)", in_sample=True)
ASTITCH = DatasetType("astitch", title="AStitchInLanguageModels", licence="gpl-3.0", in_sample=True)
PIE = DatasetType("pie", title="PIE")

DECLARED = [IDIOLINK, SEMEVAL2022, ADMIRE, ASTITCH, NCIMP, PIE]
