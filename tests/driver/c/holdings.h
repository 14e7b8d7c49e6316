/* What this workload holds itself, and the pool it takes it from. */
#pragma once

#include "fake.h"

#define HOLDINGS_MOST 256

struct holding {
    int file, devices[2]; /* the locked file; /dev/nvidiaN and /dev/nvidiactl, or -1 */
    int owner, tid;
    uint64_t bytes;
    char name[NAME_SIZE], device[NAME_SIZE];
    struct load load;
};

struct holdings {
    struct holding all[HOLDINGS_MOST];
    size_t count;
};

/* Take memory. NULL, or what went wrong; OUT_OF_MEMORY is that very pointer. */
extern const char OUT_OF_MEMORY[];
const char *holdings_take(struct holdings *mine, const char *name, const char *device, uint64_t bytes,
                          const char *kinds, struct load load);
/* Let go of all on a device ("" = everything); a forked child's copy of the descriptor keeps nothing. */
const char *holdings_free(struct holdings *mine, const char *device);
/* Close the descriptors without freeing: what a child does that is not to hold what its parent holds. */
void holdings_forget(struct holdings *mine);
void holdings_load(struct holdings *mine, const char *words);
