#!/bin/sh
# The main job on real text, with the bundled model and without a network: embed, compare, explain.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

say() { printf '\n$ %s\n' "$*"; }

say "pellucid encode sentences.txt -o embeddings.npy"
pellucid encode sentences.txt -o "$out/embeddings.npy"
python - "$out/embeddings.npy" <<'PYTHON'
import sys
import numpy as np

texts = open("sentences.txt", encoding="utf-8").read().splitlines()
rows = np.load(sys.argv[1])
print(f"{rows.shape[0]} texts, {rows.shape[1]} numbers each")
cosines = rows @ rows.T
np.fill_diagonal(cosines, -1)
print("\nThe closest sentence to each of the first three:")
for number in range(3):
    best = cosines[number].argmax()
    print(f"  {texts[number]}\n  {cosines[number, best]:.2f}  {texts[best]}\n")
PYTHON

first=$(sed -n 1p sentences.txt)
second=$(sed -n 2p sentences.txt)
third=$(sed -n 3p sentences.txt)
say "pellucid explain \"$first\" \"$second\""
pellucid explain "$first" "$second"
say "pellucid describe \"$third\""
pellucid describe "$third"

say "pellucid explain \"$first\" \"$second\" --model anchors-en-200 --top-k 5   # sentences as dimensions"
pellucid explain "$first" "$second" --model anchors-en-200 --top-k 5
say "pellucid describe \"$third\" --model anchors-en-500"
pellucid describe "$third" --model anchors-en-500
say "pellucid audit sentences.txt --model anchors-en-200"
pellucid audit sentences.txt --model anchors-en-200
