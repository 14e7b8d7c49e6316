/* Events: what is appended to the `events` file after a set was made, for the GPUs that the set registered. */
#define _GNU_SOURCE
#include "library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define XID 0x8ull
#define MIG_CHANGE 0x100ull

struct registration {
    char gpu[NAME_SIZE];
    unsigned long long types;
};

typedef struct event_set {
    long offset;
    struct registration all[GPUS_MOST];
    size_t count;
} *nvmlEventSet_t;

struct event_data {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned gi, ci;
};

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    BEGIN_NODE();
    struct stat status;
    *set = calloc(1, sizeof **set);
    (*set)->offset = stat(state_path("events"), &status) == 0 ? (long)status.st_size : 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    count_call(__func__);
    free(set);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t handle, unsigned long long *types) {
    BEGIN(handle);
    bool none = device.ci || (device.gpu->events.known && !device.gpu->events.value);
    *types = none ? 0 : XID | (device.gpu->mig == MIG_UNSUPPORTED ? 0 : MIG_CHANGE);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t handle, unsigned long long types, nvmlEventSet_t set) {
    BEGIN(handle);
    REQUIRE(!device.ci && !(device.gpu->events.known && !device.gpu->events.value), NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(set->count < GPUS_MOST, NVML_ERROR_UNKNOWN);
    text_copy(set->all[set->count].gpu, NAME_SIZE, device.gpu->uuid);
    set->all[set->count++].types = types;
    return NVML_SUCCESS;
}

/* The next whole line, if it is there. Asked 200 times a second by whoever waits, so a look at the size comes first. */
static bool next_line(nvmlEventSet_t set, char *line, int size) {
    struct stat status;
    if (stat(state_path("events"), &status) != 0 || (long)status.st_size <= set->offset)
        return false;
    FILE *file = fopen(state_path("events"), "re");
    bool whole = file && fseek(file, set->offset, SEEK_SET) == 0 && fgets(line, size, file) && strchr(line, '\n');
    if (whole)
        set->offset = ftell(file);
    if (file)
        fclose(file);
    return whole;
}

static bool take(nvmlEventSet_t set, struct event_data *data) {
    char line[256], word[16], gpu[NAME_SIZE];
    while (next_line(set, line, sizeof line)) {
        unsigned long long code = 0;
        unsigned gi = UINT32_MAX;
        if (sscanf(line, "%15s %95s %llu %u", word, gpu, &code, &gi) < 2)
            continue;
        unsigned long long type = strcmp(word, "xid") == 0 ? XID : MIG_CHANGE;
        for (size_t i = 0; i < set->count; i++)
            if (strcmp(set->all[i].gpu, gpu) == 0 && set->all[i].types & type) {
                *data = (struct event_data){handle_of(gpu, -1), type, code, gi, UINT32_MAX};
                return true;
            }
    }
    return false;
}

/* A GPU that is gone takes its registrations along: one of that uuid which comes later has to be registered anew. */
static void forget_gone(nvmlEventSet_t set, const struct node *node) {
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++)
        if (node_gpu(node, set->all[i].gpu))
            set->all[kept++] = set->all[i];
    set->count = kept;
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, struct event_data *data, unsigned timeout_ms) {
    BEGIN_NODE();
    forget_gone(set, node);
    struct timespec start, now, pause = {.tv_nsec = 5000000};
    if (still())
        pause = (struct timespec){timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!take(set, data)) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        REQUIRE((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < (long)timeout_ms,
                NVML_ERROR_TIMEOUT);
        nanosleep(&pause, NULL);
    }
    return NVML_SUCCESS;
}
