#!/bin/sh
# Writes the text of gpt-perl.json: what perl's modules say about themselves, 3.7 MB, from Debian's package perl-modules.
# usage: sh configs/perl-text.sh [FOLDER]      -> FOLDER/train.txt, and every 20th module in FOLDER/val.txt
set -eu
to=${1:-$(dirname "$0")/perl-text}
from=$(ls -d /usr/share/perl/5.*.* | tail -n 1)
mkdir -p "$to"
find "$from" -name '*.pod' -o -name '*.pm' | LC_ALL=C sort | LC_ALL=C xargs awk -v to="$to" '
  FNR == 1 { file = to (++files % 20 ? "/train.txt" : "/val.txt"); told = 0 }
  /^=[a-z]/ { told = 1 }
  told { print > file }
  /^=cut/ { told = 0 }'
wc -c "$to"/*.txt
