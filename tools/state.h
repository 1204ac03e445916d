// The folder where what is remembered of jobs lies: receipts.
#ifndef PENSTOCK_TOOLS_STATE_H
#define PENSTOCK_TOOLS_STATE_H

#include "proto/base.h"
#include "proto/err.h"

// `given` (--state), else $XDG_STATE_HOME/penstock, else ~/.local/state/penstock: made with its missing
// parents (mode 0700). Its absolute path without links goes to `out`. -errno with *err (ERR_START).
MUST_CHECK int state_folder(const char *given, char *out, size_t len, struct err *err);

#endif
