// Replays a corpus against the fuzz target that it is linked with: every file as it is, then a fixed number
// of mutations of it (bit flips, truncations, overwritten and repeated ranges) drawn from a seed.
//     fuzz_<noun> [--seed N] [--mutations N] FOLDER|FILE...
// The seed and each file's name go to the standard error output, so that the log of a crash says how to
// repeat it.
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct replay {
    uint64_t seed;
    unsigned mutations;
    unsigned files;
};

// splitmix64, Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t random_below(uint64_t *state, size_t bound)
{
    return bound == 0 ? 0 : (size_t)(random_next(state) % bound);
}

static _Noreturn void give_up(const char *what, const char *path)
{
    fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
    exit(EXIT_FAILURE);
}

// One to four changes of a copy of the input; returns its new size, which never grows.
static size_t mutate(uint8_t *data, size_t size, uint64_t *state)
{
    static const uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff};

    for (size_t left = 1 + random_below(state, 4); left > 0 && size > 0; left--) {
        size_t at = random_below(state, size);
        size_t from = random_below(state, size);
        size_t span = random_below(state, 1 + size - (at > from ? at : from));
        switch (random_below(state, 4)) {
        case 0:
            data[at] = (uint8_t)(data[at] ^ (1u << random_below(state, 8)));
            break;
        case 1:
            size = at;
            break;
        case 2:
            memset(data + at, edges[random_below(state, sizeof(edges))], span < 8 ? span : 8);
            break;
        default:
            memmove(data + at, data + from, span);
            break;
        }
    }
    return size;
}

// Hands over a buffer of exactly this size, so that a sanitizer sees any read beyond it.
static void run_copy(const uint8_t *data, size_t size, uint64_t *state)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL)
        give_up("memory for", "an input");
    memcpy(copy, data, size);
    size_t mutated_size = state != NULL ? mutate(copy, size, state) : size;
    uint8_t *exact = malloc(mutated_size > 0 ? mutated_size : 1);
    if (exact == NULL)
        give_up("memory for", "an input");
    memcpy(exact, copy, mutated_size);
    free(copy);
    LLVMFuzzerTestOneInput(exact, mutated_size);
    free(exact);
}

static void replay_file(struct replay *replay, const char *path, size_t size)
{
    uint64_t state = replay->seed;
    uint8_t *data = malloc(size > 0 ? size : 1);
    FILE *file = fopen(path, "rb");
    if (data == NULL || file == NULL || fread(data, 1, size, file) != size)
        give_up("read", path);
    fclose(file);
    fprintf(stderr, "%s, seed %llu\n", path, (unsigned long long)replay->seed);
    run_copy(data, size, NULL);
    for (unsigned i = 0; i < replay->mutations; i++)
        run_copy(data, size, &state);
    free(data);
    replay->files++;
}

static void replay_path(struct replay *replay, const char *path)
{
    struct stat status;
    struct dirent **entries;
    if (stat(path, &status) != 0)
        give_up("stat", path);
    if (!S_ISDIR(status.st_mode)) {
        replay_file(replay, path, (size_t)status.st_size);
        return;
    }
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0)
        give_up("list", path);
    for (int i = 0; i < count; i++) {
        char *entry_path;
        if (asprintf(&entry_path, "%s/%s", path, entries[i]->d_name) < 0)
            give_up("memory for", path);
        if (entries[i]->d_name[0] != '.')
            replay_path(replay, entry_path);
        free(entry_path);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    struct replay replay = {.seed = 1, .mutations = 500};
    const char *slash = strrchr(argv[0], '/');
    const char *program = slash != NULL ? slash + 1 : argv[0];
    const char *noun = strncmp(program, "fuzz_", 5) == 0 ? program + 5 : program;
    struct timespec began;
    struct timespec ended;

    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            replay.seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--mutations") == 0 && i + 1 < argc)
            replay.mutations = (unsigned)strtoul(argv[++i], NULL, 10);
        else
            replay_path(&replay, argv[i]);
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    if (replay.files == 0) {
        printf("not ok fuzz.%s the corpus is empty\n", noun);
        return EXIT_FAILURE;
    }
    printf("ok fuzz.%s %.3f\n", noun,
           (double)(ended.tv_sec - began.tv_sec) + (double)(ended.tv_nsec - began.tv_nsec) / 1e9);
    return EXIT_SUCCESS;
}
