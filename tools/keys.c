#include "tools/keys.h"

#include <errno.h>
#include <string.h>

int keys_for_place(const char *file, const struct place *place, struct key_ring *keys, struct err *err)
{
    if (place->kind != PLACE_AGENT)
        return 0;
    if (file == NULL) {
        err_set(err, ERR_USAGE, 0, NULL, place->text, strlen(place->text), "needs --key FILE");
        return -EINVAL;
    }
    int rc = keys->count == 0 ? key_ring_load(file, keys, err) : 0;
    if (rc < 0 || key_ring_for_host(keys, place->host) != NULL)
        return rc;
    err_set(err, ERR_USAGE, 0, NULL, file, strlen(file), "has no key named like %s, and more than one key",
            place->host);
    return -ENOKEY;
}
