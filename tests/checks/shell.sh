#!/bin/bash
# tier: check
# cap: 120
# Every shell script passes shellcheck.
source "$(dirname "$0")/../lib/case.sh"

shellcheck_all() {
    find tests packaging .ci -type f -print0 | xargs -0 grep -lE -m 1 '^#!/bin/(ba)?sh|^# shellcheck shell=' |
        xargs -P "$(nproc)" -n 4 shellcheck --external-sources --source-path=SCRIPTDIR --severity=warning
}

case_run shellcheck shellcheck_all
