// The version of this release: in `penstock --version`, hello, reports and receipts.
#ifndef PENSTOCK_PROTO_VERSION_H
#define PENSTOCK_PROTO_VERSION_H

#define PENSTOCK_VERSION "0.1.0"

#endif
