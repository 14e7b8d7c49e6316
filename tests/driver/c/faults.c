/* How every function begins: it is counted, and the switches may fail it, slow it or hang it. */
#define _GNU_SOURCE
#include "library.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Counters: a file of fixed records that all processes map. -------------------------------------------------------- */

#define CALLS_MOST 256

struct call {
    char name[112];
    uint64_t count, reserved;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct call *calls;
static char calls_path[1024];

static struct call *map_calls(void) {
    const char *path = state_path("calls");
    if (calls && strcmp(path, calls_path) == 0)
        return calls;
    if (calls)
        munmap(calls, sizeof *calls * CALLS_MOST);
    calls = NULL;
    text_copy(calls_path, sizeof calls_path, path);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return NULL;
    struct stat status;
    size_t size = sizeof *calls * CALLS_MOST;
    if (fstat(file, &status) == 0 && ((size_t)status.st_size >= size || ftruncate(file, (off_t)size) == 0)) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        calls = memory == MAP_FAILED ? NULL : memory;
    }
    close(file);
    return calls;
}

/* A record's first byte goes from 0 to 1 to claim it; its true first letter is written last. */
void count_call(const char *function) {
    pthread_mutex_lock(&guard);
    struct call *table = map_calls();
    for (size_t i = 0; table && i < CALLS_MOST;) {
        char first = __atomic_load_n(&table[i].name[0], __ATOMIC_ACQUIRE), empty = 0;
        if (first == 1)
            continue;
        if (first == 0 &&
            __atomic_compare_exchange_n(&table[i].name[0], &empty, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            text_copy(table[i].name + 1, sizeof table[i].name - 1, function + 1);
            __atomic_store_n(&table[i].name[0], function[0], __ATOMIC_RELEASE);
        } else if (first != 0 && strcmp(table[i].name, function) == 0) {
            __atomic_add_fetch(&table[i].count, 1, __ATOMIC_RELAXED);
            break;
        } else if (first != 0) {
            i++;
        }
    }
    pthread_mutex_unlock(&guard);
}

/* Switches ------------------------------------------------------------------------------------------------------------ */

static bool read_switch(const char *name, const char *uuid, char *value, size_t size) {
    char path[1024];
    text_copy(path, sizeof path, uuid ? state_path("switches/%s@%s", name, uuid) : state_path("switches/%s", name));
    char *text = text_read(path);
    if (!text)
        return false;
    text[strcspn(text, "\n")] = 0;
    char *times = strstr(text, " x");
    if (times) {
        *times = 0;
        long left = atol(times + 2) - 1;
        if (left > 0) {
            char again[256];
            snprintf(again, sizeof again, "%.200s x%ld\n", text, left);
            text_replace(path, again);
        } else {
            unlink(path);
        }
    }
    if (value)
        text_copy(value, size, text);
    free(text);
    return true;
}

bool switched(const char *name, const char *gpu, const char *mig, char *value, size_t size) {
    return !still() && ((mig && read_switch(name, mig, value, size)) || (gpu && read_switch(name, gpu, value, size)) ||
                        read_switch(name, NULL, value, size));
}

bool device_switched(const char *name, const struct device *device, char *value, size_t size) {
    return switched(name, device->gpu->uuid, device->ci ? device->ci->uuid : NULL, value, size);
}

/* The name without "_vN"; all forms of init are "nvmlInit". */
static void canonical(const char *function, char *name, size_t size) {
    text_copy(name, size, function);
    char *version = strrchr(name, '_');
    if (version && version[1] == 'v')
        *version = 0;
    if (strncmp(name, "nvmlInit", 8) == 0)
        name[8] = 0;
}

static bool function_switched(const char *kind, const char *function, const char *gpu, const char *mig, char *value,
                              size_t size) {
    char base[112], name[160];
    canonical(function, base, sizeof base);
    bool special = strcmp(base, "nvmlInit") == 0 || strcmp(base, "nvmlShutdown") == 0;
    const char *forms[] = {strcmp(base, function) == 0 ? NULL : function, base, special ? NULL : "*"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        snprintf(name, sizeof name, "%s.%s", kind, forms[i] ? forms[i] : "");
        if (forms[i] && switched(name, gpu, mig, value, size))
            return true;
    }
    return false;
}

static void sleep_ms(double milliseconds) {
    struct timespec time = {(time_t)(milliseconds / 1e3), (long)(milliseconds * 1e6) % 1000000000L};
    nanosleep(&time, NULL);
}

static double cost_ms(const char *function) {
    return strstr(function, "RunningProcess")  ? 4.5
           : strstr(function, "GetMemoryInfo") ? 0.0116
           : strstr(function, "Utilization")   ? 0.0025
                                               : 0;
}

static bool any_switch(void) {
    DIR *folder = still() ? NULL : opendir(state_path("switches"));
    bool any = false;
    for (struct dirent *entry; folder && !any && (entry = readdir(folder));)
        any = *entry->d_name != '.';
    if (folder)
        closedir(folder);
    return any;
}

nvmlReturn_t faults(const char *function, const char *gpu, const char *mig) {
    char value[64];
    if (!any_switch())
        return NVML_SUCCESS;
    if (switched("costs", gpu, mig, NULL, 0) && cost_ms(function) > 0)
        sleep_ms(cost_ms(function));
    if (function_switched("slow", function, gpu, mig, value, sizeof value))
        sleep_ms(atof(value));
    while (function_switched("hang", function, gpu, mig, NULL, 0))
        sleep_ms(5);
    if (function_switched("fail", function, gpu, mig, value, sizeof value))
        return (nvmlReturn_t)atoi(value);
    return NVML_SUCCESS;
}

bool miscounts(const char *function, const char *gpu, const char *mig, unsigned *count, bool *told) {
    char value[64];
    if (!any_switch() || !function_switched("count", function, gpu, mig, value, sizeof value))
        return false;
    *count = (unsigned)strtoul(value, NULL, 10);
    *told = strstr(value, "told") != NULL;
    return true;
}

unsigned growth(const char *function, const struct device *device) {
    char value[64];
    const char *mig = device->ci ? device->ci->uuid : NULL;
    bool on = any_switch() && function_switched("growth", function, device->gpu->uuid, mig, value, sizeof value);
    return on ? (unsigned)atoi(value) : 0;
}

/* Handles ------------------------------------------------------------------------------------------------------------- */

static struct handle *handles[4096];
static size_t handle_count;

nvmlDevice_t handle_of(const char *gpu, int slot) {
    pthread_mutex_lock(&guard);
    struct handle *found = NULL;
    for (size_t i = 0; i < handle_count && !found; i++)
        if (handles[i]->slot == slot && strcmp(handles[i]->gpu, gpu) == 0)
            found = handles[i];
    if (!found && handle_count < sizeof handles / sizeof *handles) {
        found = handles[handle_count++] = malloc(sizeof *found);
        text_copy(found->gpu, sizeof found->gpu, gpu);
        found->slot = slot;
    }
    pthread_mutex_unlock(&guard);
    return found;
}

static bool known(nvmlDevice_t handle) {
    pthread_mutex_lock(&guard);
    bool found = false;
    for (size_t i = 0; i < handle_count && !found; i++)
        found = handles[i] == handle;
    pthread_mutex_unlock(&guard);
    return found;
}

static const struct compute_instance *in_slot(const struct gpu *gpu, int slot) {
    for (size_t i = 0; gpu->mig == MIG_ON && i < gpu->compute_count; i++)
        if (gpu->computes[i].slot == (unsigned)slot)
            return &gpu->computes[i];
    return NULL;
}

/* Beginnings ---------------------------------------------------------------------------------------------------------- */

nvmlReturn_t begin_node(const char *function, const struct node **node) {
    count_call(function);
    REQUIRE(initialized(), NVML_ERROR_UNINITIALIZED);
    nvmlReturn_t fault = faults(function, NULL, NULL);
    REQUIRE(fault == NVML_SUCCESS, fault);
    *node = node_open();
    return *node ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t find(nvmlDevice_t handle, struct device *device) {
    device->node = node_open();
    REQUIRE(device->node, NVML_ERROR_UNINITIALIZED);
    device->gpu = node_gpu(device->node, handle->gpu);
    REQUIRE(device->gpu, NVML_ERROR_GPU_IS_LOST);
    device->ci = handle->slot < 0 ? NULL : in_slot(device->gpu, handle->slot);
    return handle->slot < 0 || device->ci ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t begin_device(const char *function, nvmlDevice_t handle, struct device *device) {
    count_call(function);
    REQUIRE(initialized(), NVML_ERROR_UNINITIALIZED);
    REQUIRE(known(handle), NVML_ERROR_INVALID_ARGUMENT);
    struct device before = {0};
    find(handle, &before);
    nvmlReturn_t fault = faults(function, handle->gpu, before.ci ? before.ci->uuid : NULL);
    device_close(&before);
    REQUIRE(fault == NVML_SUCCESS, fault);
    return find(handle, device); /* anew: the node may have changed while the call hung */
}
