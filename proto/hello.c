#include "proto/hello.h"

#include <errno.h>

void hello_make(const char *software, const char *node, struct message *out)
{
    *out = (struct message){.type = MESSAGE_HELLO,
                            .hello = {.version = WIRE_VERSION,
                                      .version_min = WIRE_VERSION_MIN,
                                      .features = FEATURES_HAVE,
                                      .required = FEATURES_REQUIRED,
                                      .software = blob_text(software),
                                      .node = blob_text(node)}};
}

int hello_accept(const struct msg_hello *theirs, const char *software, struct err *err)
{
    char other[65];
    uint64_t they_lack = FEATURES_REQUIRED & ~theirs->features, we_lack = theirs->required & ~FEATURES_HAVE;
    blob_string(&theirs->software, other, sizeof other);
    if (theirs->version < WIRE_VERSION_MIN || theirs->version_min > WIRE_VERSION)
        err_set(err, ERR_VERSION, 0, "", NULL, 0, "%s speaks wire version %u to %u, %s speaks %u to %u",
                other, theirs->version_min, theirs->version, software, WIRE_VERSION_MIN, WIRE_VERSION);
    else if (they_lack != 0 || we_lack != 0)
        err_set(err, ERR_VERSION, 0, "", NULL, 0,
                "%s and %s lack a feature that the other requires (%llx, %llx)", other, software,
                (unsigned long long)they_lack, (unsigned long long)we_lack);
    else
        return 0;
    return -EPROTONOSUPPORT;
}
