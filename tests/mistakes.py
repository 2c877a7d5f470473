"""Small tables of users' data, sound and spoiled, and checking a configuration on one of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.own_data import write
from tests.tiny_clip import save_tiny_clip
from tests.tiny_runs import composed


def table(head: str, row: Callable[[int], str], num: int = 48) -> str:
    """A table as CSV, of its head and what gives each row by its number."""
    return f"{head}\n" + "".join(f"{row(i)}\n" for i in range(num))


def uses(before: str, num: int = 24) -> str:
    """Labelled uses of an expression, each after the words `before`."""
    rows = [
        {"text": f"{i} {before}spill the beans {i}", "span": "spill the beans", "group": f"g{i % 4}"}
        | {"meaning": ("idiom", "literal")[i // 4 % 2]}
        for i in range(num)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


# Each of the 14 may be filled by up to five words, and all words between them are alike.
PLACEHOLDERS = "take " + "the someone " * 14 + "home"
PREAMBLE = "please read this with care " * 20
SIDES = ("Up", "Down")
PAIRS = table("question,answer", lambda i: f"Where is number {i}?,It is at home {i}.")
SCORED = table("sentence1,sentence2,score", lambda i: f"Cat {i} sat.,Cat {i} lay.,{i % 6}")
RATED = SCORED.replace("score", "rating", 1)
LABELLED = table("text,label", lambda i: f"Sentence {i}.,{i % 4}")
ONE_GROUP = table("text,group", lambda i: f"Sentence {i}.,one")
FILES = {
    # Sound
    "pairs": PAIRS,
    "simcse": table("anchor,positive", lambda i: f"Sentence number {i}.,Sentence number {i}."),
    "symmetric": table("anchor,positive", lambda i: f"{SIDES[i % 2]} {i // 2}.,{SIDES[i % 2 - 1]} {i // 2}."),
    "itself": table("anchor,positive", lambda i: f"Is {i // 2} up?,{('Is', 'So is')[i % 2]} {i // 2} up?"),
    "triples": table("anchor,positive,negative", lambda i: f"Where is {i}?,It is home {i}.,It is far {i}."),
    "weighted": table("question,answer,weight", lambda i: f"Where is {i}?,Home {i}.,{i % 3}"),
    "yes_no": table("question,answer", lambda i: f"Is {i} even?,{('Yes', 'No')[i % 2]}"),
    "six": table("question,answer", lambda i: f"Where is {i}?,Home {i}.", 6),
    "spans": table("anchor,positive,span", lambda i: f"He broke the ice {i}.,All relaxed {i}.,broke the ice"),
    "groups": table("text,group,meaning", lambda i: f"Sentence {i}.,g{i // 8},{i % 2}"),
    "one_meaning": table("text,group", lambda i: f"Sentence {i}.,g{i // 8}"),
    "scored": SCORED,
    "unit": table("sentence1,sentence2,score", lambda i: f"Cat {i} sat.,Cat {i} lay.,{i % 2}"),
    "labelled": LABELLED,
    "grouped": table("text,label,group", lambda i: f"Sentence {i}.,{i // 3},{i // 6}"),
    "sums": table("question,answer", lambda i: f"{i} and {i * i % 7},{i + i * i % 7}"),
    "marks": PAIRS + "Where\u200b is it?,Here\u00ad.\n",
    "capitals": PAIRS + "is it here?,IS IT HERE?\n",
    "numbered": PAIRS.replace("question,answer", "sentence1,sentence2,idx").replace(".\n", ".,1\n"),
    "noted": PAIRS.replace("question,answer", "sentence1,sentence2,note").replace(".\n", ".,x\n"),
    "rated": RATED,
    "glossary": "expression,meaning\ntake the someone the someone the someone the someone home,x\n",
    # Spoiled, or too little
    "heavy": table("question,answer,weight", lambda i: f"Where is {i}?,At {i}.,1e300"),
    "weightless": table("question,answer,weight", lambda i: f"Where is {i}?,It is at home {i}.,0"),
    "invisible": PAIRS + "Where is it?,\u200b \ufeff\n",
    "preamble": table("question,answer", lambda i: f"{PREAMBLE} where is {i}?,{PREAMBLE} at home {i}."),
    "case": table("question,answer", lambda i: f"where is {i}?,WHERE is {i}?"),
    "one_answer": table("question,answer", lambda i: f"where is {i}?,at home"),
    "one_text": table("text,label", lambda i: f"the same,l{i % 4}"),
    "level": table("sentence1,sentence2,score", lambda i: f"Cat {i}.,It {i}.,1"),
    "sorted": table("text,label,group", lambda i: f"Sentence {i}.,{i // 12},{i // 12}"),
    "one_group": ONE_GROUP,
    "against_itself": table(
        "anchor,positive,negative", lambda i: f"Is {i}?,Yes {i}.,{('Is', 'No')[i > 0]} {i}?"
    ),
    "words": f"expression,meaning\nred tape,x\n{PLACEHOLDERS},x\n",
    "near.jsonl": uses("They "),
    "far.jsonl": uses("word " * 80),
    "partly_far.jsonl": uses("word " * 80, 2) + uses("We ", 8),
    # Held out
    "val_labelled": LABELLED.replace("Sentence", "Held"),
    "val_group": ONE_GROUP.replace("Sentence", "Held"),
    "val_one": "question,answer,negative\nwho?,nobody,somebody\n",
    "val_equal": "question,answer\nwho?,nobody\nwhat?,nobody\n",
    "val_known": "question,answer\nwho?,It is at home 3.\nwhat?,x\nwhy?,It is at home 4.\n",
}


def configured(file: str, options: str, tiny: Path) -> dict[str, object]:
    """The configuration of a training on one of FILES in the working folder, and the tiny model.

    Args:
        file: "" where the options name an experiment of their own.
        options: separated by blanks; `{pairs}` is the path of that file, {tiny} and {clip} are models.
    """
    paths = {name.partition(".")[0]: name if "." in name else f"{name}.csv" for name in FILES}
    named = {*re.findall(r"{(\w+)}", options), file.partition(".")[0]}
    for name, content in FILES.items():
        if name.partition(".")[0] in named:
            write(Path(paths[name.partition(".")[0]]), content)
    paths["tiny"] = str(tiny)
    if "clip" in named:
        paths["clip"] = str(save_tiny_clip(Path("clip")))
    own = ["+experiment=own", f"data.train={paths[file.partition('.')[0]]}"] if file else []
    own += ["data.val_share=0.25"] if file and "data.val=" not in options else []
    filled = re.sub(r"{(\w+)}", lambda match: paths.get(match[1], match[0]), options).split()
    model = ["device=cpu", "model=pretrained", f"model.path={tiny}", "eval.cache=false"]
    return composed("train", *own, *model, *filled)
