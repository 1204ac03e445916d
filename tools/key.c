// penstock key: makes a key file.
#include <stdio.h>
#include <string.h>

#include "mover/key.h"
#include "tools/command.h"
#include "tools/options.h"
#include "tools/outcome.h"

static const struct option_set key_options = {
    .command = "key",
    .operands = "FILE",
    .about = "Makes a file with one new random key (mode 0600). A file that exists is left alone.",
    .notes =
        "Give the same file to both sides, by a way that you trust, and use it for no other pair of sites.\n",
};

int cmd_key(int argc, char **argv)
{
    struct options_found found;
    struct err err;
    char line[2048], name[1024];
    int status = options_take(&key_options, argc, argv, NULL, &found);
    if (status >= 0)
        return status;
    if (found.count != 1) {
        fprintf(stderr, "penstock key: one FILE is needed (see penstock key --help)\n");
        return OUTCOME_USAGE;
    }
    if (key_file_make(found.operands[0], &err) < 0) {
        fprintf(stderr, "penstock key: %s\n", err_line(&err, line, sizeof(line)));
        return err_class_exit(err.class);
    }
    err_escape(name, sizeof(name), found.operands[0], strlen(found.operands[0]));
    printf("%s holds a new key; only you can read it.\n", name);
    printf("Give the same file to both sides: penstock serve --key FILE there, penstock copy --key FILE "
           "here.\n");
    return OUTCOME_COMPLETE;
}
