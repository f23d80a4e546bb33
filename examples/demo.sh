#!/bin/sh
# What pellucid does, on one screen, offline: a score explained, a search with reasons, and what to try next.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

say() { printf '\n$ %s\n' "$*"; }

# Neither pair has a word in common.
question="How do I cancel my subscription?"
answer="To end your plan, terminate the membership under Settings."
say "pellucid explain \"$question\" \"$answer\""
pellucid explain "$question" "$answer"

say "pellucid index build help help_centre.txt      # 22 answers of a help centre"
pellucid index build "$out/help" help_centre.txt 2>&1 | sed "s|$out/||"
asked="I lost my login"
say "pellucid search help \"$asked\" --top-k 1"
pellucid search "$out/help" "$asked" --top-k 1

say "pellucid index build better help_centre.txt --model minilm    # a transformer finds more, and takes longer"
pellucid index build "$out/better" help_centre.txt --model minilm 2>&1 | sed "s|$out/||"
say "pellucid search better \"$asked\" --top-k 1"
pellucid search "$out/better" "$asked" --top-k 1

cat <<'END'

Next:
  pellucid explain "one text" "another" -m sentence-transformers/all-MiniLM-L6-v2   # your encoder
  pellucid index build my-index my-texts.csv --field body; pellucid search my-index   # your documents
  pellucid serve --index my-index    # a page to search and look around: http://127.0.0.1:8080; pellucid[serve]
  pellucid doctor                    # what is installed and works here
END
