#!/bin/sh
# Writes the texts of gpt-perl.json and gpt-perl-code.json from Debian's package perl-modules: the documentation of
# perl's modules, 3.7 MB, and their code.
# usage: sh configs/perl-text.sh [FOLDER]      -> FOLDER/train.txt and code-train.txt, and every 20th module in val.txt and code-val.txt
set -eu
to=${1:-$(dirname "$0")/perl-text}
from=$(ls -d /usr/share/perl/5.*.* | tail -n 1)
mkdir -p "$to"
find "$from" -name '*.pod' -o -name '*.pm' | LC_ALL=C sort | LC_ALL=C xargs awk -v to="$to" '
  FNR == 1 { file = (++files % 20 ? "train.txt" : "val.txt"); is_text = 0 }
  /^=[a-z]/ { is_text = 1 }
  is_text { print > (to "/" file) }
  !is_text { print > (to "/code-" file) }
  /^=cut/ { is_text = 0 }'
wc -c "$to"/*.txt
