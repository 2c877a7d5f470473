#!/usr/bin/env bash
# The README's results table, from nothing: the untrained model, three systems with three seeds each, and a report.
#
#   bash runs/headline.sh            about two hours on two CPU cores; 13 MB of data are downloaded, or read from IDIOM_DATA
#   QUICK=1 bash runs/headline.sh    a rehearsal on the project's sample data, in minutes; its figures mean nothing
#
# After an interruption, start it again: finished runs are skipped, and an unfinished one is resumed.
set -euo pipefail
cd "$(dirname "$0")/.."

out=checkpoints/headline
seeds=42,43,44
quick=()
if [ -n "${QUICK:-}" ]; then
    out=checkpoints/headline-quick
    seeds=42,43
    quick=(+debug=smoke)
fi

# ---- Install: Python 3.11 to 3.13, make, a package index (or an environment with idiomtune that is activated)
if ! command -v idiomtune >/dev/null; then
    make .venv/.runs
    PATH=$PWD/.venv/bin:$PATH
fi

# ---- The published recipe, as its authors' code runs it (2,048 tokens a forward pass, as it was measured). Every run
#      also scores MiniLM as it is, before training
idiomtune train -m +experiment=idiolink_released "${quick[@]}" seed=$seeds split=[val,val+train] \
    benchmark=[idiolink] model.tokens_per_forward=2048 hydra.sweep.dir="$out/idiolink_released"

# ---- Ours: one checkpoint for sentence and span queries
idiomtune train -m +experiment=idiolink_ft "${quick[@]}" seed=$seeds \
    benchmark=[idiolink] hydra.sweep.dir="$out/idiolink_ft"

# ---- Ours, given a line per idiom that says what it means
idiomtune train -m +experiment=idiolink_glossary "${quick[@]}" seed=$seeds \
    benchmark=[idiolink] hydra.sweep.dir="$out/idiolink_glossary"

# ---- The table: mean ± standard deviation over the seeds; the column val+train is the README's
idiomtune report "$out"/idiolink_released "$out"/idiolink_ft "$out"/idiolink_glossary output="$out/report" overwrite=true
echo "$out/report/report.html"
