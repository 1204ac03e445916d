#!/bin/bash
# Every C file below the named folders is as clang-format writes it: a result line a file that is not, else one.
set -euo pipefail

mapfile -t wrong < <(find "$@" -name '*.[ch]' -print0 | xargs -0 -P "$(nproc)" -I '{}' \
    bash -c 'clang-format --dry-run -Werror "$1" 2>/dev/null || echo "$1"' - '{}' | sort)
for file in "${wrong[@]}"; do
    echo "not ok format.$file run make format"
done
if [[ ${#wrong[@]} -eq 0 ]]; then
    echo "ok format"
fi
