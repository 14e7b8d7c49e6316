/* The process lists: live owners and injected entries in, one array in the caller's layout out. */
#define _GNU_SOURCE
#include "library.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct entry {
    unsigned pid, kinds, gi, ci;
    uint64_t bytes;
};

struct entries {
    struct entry *all;
    size_t count;
};

static struct entry *push(struct entries *entries, struct entry entry) {
    entries->all = realloc(entries->all, (entries->count + 1) * sizeof entry);
    entries->all[entries->count] = entry;
    return &entries->all[entries->count++];
}

/* The number that a thread has for us: /proc/<pid>/task/<number>, whose innermost number is the one it wrote down itself. */
static unsigned thread_of(unsigned owner, unsigned innermost) {
    char path[300], line[512];
    snprintf(path, sizeof path, "/proc/%u/task", owner);
    DIR *tasks = opendir(path);
    unsigned found = 0;
    for (struct dirent *task; tasks && !found && (task = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%u/task/%.20s/status", owner, task->d_name);
        FILE *status = fopen(path, "re");
        while (status && fgets(line, sizeof line, status))
            if (strncmp(line, "NSpid:", 6) == 0 && strtoul(strrchr(line, '\t'), NULL, 10) == innermost)
                found = (unsigned)atoi(task->d_name);
        if (status)
            fclose(status);
    }
    if (tasks)
        closedir(tasks);
    return found ? found : innermost; /* an ended thread leaves its number behind, like an ended process */
}

/* Is this allocation seen through this handle? The instance it belongs to, or NULL outside MIG. */
static bool seen(const struct device *device, const char *place, const struct compute_instance **ci) {
    *ci = gpu_compute(device->gpu, place);
    return device->ci ? *ci == device->ci : *ci || strcmp(place, device->gpu->uuid) == 0;
}

static struct entries collect(const struct device *device) {
    struct entries entries = {0};
    const struct compute_instance *ci;
    bool threads = device_switched("thread_ids", device, NULL, 0);
    bool unavailable = device_switched("memory_unavailable", device, NULL, 0);
    struct allocations live = allocations_read(false);
    for (size_t i = 0; i < live.count; i++) {
        const struct allocation *allocation = &live.all[i];
        if (!allocation->owner || !seen(device, allocation->device, &ci))
            continue;
        unsigned pid = threads ? thread_of(allocation->owner, allocation->tid) : allocation->owner;
        struct entry *entry = NULL;
        for (size_t j = 0; j < entries.count && !entry; j++)
            entry = entries.all[j].pid == pid ? &entries.all[j] : NULL;
        entry = entry ? entry : push(&entries, (struct entry){.pid = pid});
        entry->bytes += allocation->bytes;
        entry->kinds |= allocation->kinds;
        entry->gi = ci ? ci->gi : NONE; /* the last one wins, as in the kernel */
        entry->ci = ci ? ci->id : NONE;
    }
    allocations_free(&live);
    for (size_t i = 0; i < device->gpu->process_count; i++) {
        const struct injected_process *process = &device->gpu->processes[i];
        if (seen(device, *process->device ? process->device : device->gpu->uuid, &ci))
            push(&entries, (struct entry){.pid = process->pid,
                                          .kinds = process->kinds,
                                          .bytes = process->bytes,
                                          .gi = ci ? ci->gi : NONE,
                                          .ci = ci ? ci->id : NONE});
    }
    for (size_t i = 0; i < entries.count && unavailable; i++)
        entries.all[i].bytes = UNKNOWN_BYTES;
    return entries;
}

static struct entries collect_kind(const char *function, const struct device *device, unsigned kinds, bool data) {
    struct entries entries = collect(device);
    size_t kept = 0;
    for (size_t i = 0; i < entries.count; i++)
        if (entries.all[i].kinds & kinds)
            entries.all[kept++] = entries.all[i];
    entries.count = kept;
    for (unsigned more = data ? growth(function, device) : 0; more; more--) /* above any pid that Linux gives */
        push(&entries, (struct entry){.pid = (1u << 22) + more, .bytes = 1 << 20, .gi = NONE, .ci = NONE});
    return entries;
}

static bool denied(const struct device *device) {
    char word[64];
    bool parent = device->gpu->mig == MIG_ON && !device->ci;
    return !mig_shown(device) || (parent && device_switched("mig_parent", device, word, sizeof word) &&
                                  strcmp(word, "denied") == 0);
}

/* 16 bytes: pid, memory. 24: and the instances. 32: and protected memory. */
static void write_entry(void *target, size_t size, const struct entry *entry) {
    struct {
        unsigned pid;
        unsigned long long memory;
        unsigned gi, ci;
        unsigned long long protected;
    } whole = {entry->pid, entry->bytes, entry->gi, entry->ci, 0};
    memcpy(target, &whole, size);
}

/* With too little room: INSUFFICIENT_SIZE and the count that would do; an empty list is SUCCESS with any room. */
static nvmlReturn_t fill(const struct entries *entries, unsigned *count, void *target, size_t size) {
    unsigned room = target ? *count : 0;
    *count = (unsigned)entries->count;
    REQUIRE(entries->count <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    for (size_t i = 0; i < entries->count; i++)
        write_entry((char *)target + i * size, size, &entries->all[i]);
    return NVML_SUCCESS;
}

static nvmlReturn_t list(const char *function, nvmlDevice_t handle, unsigned kind, unsigned *count, void *target,
                         size_t size) {
    __attribute__((cleanup(device_close))) struct device device = {0};
    nvmlReturn_t begun = begin_device(function, handle, &device);
    REQUIRE(begun == NVML_SUCCESS, begun);
    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(!denied(&device), NVML_ERROR_NO_PERMISSION);
    bool told;
    if (miscounts(function, device.gpu->uuid, device.ci ? device.ci->uuid : NULL, count, &told))
        return told ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    struct entries entries = collect_kind(function, &device, kind, target && *count);
    nvmlReturn_t result = fill(&entries, count, target, size);
    free(entries.all);
    return result;
}

#define LIST(name, kind, size)                                                                                         \
    API nvmlReturn_t name(nvmlDevice_t handle, unsigned *count, void *entries) {                                       \
        return list(__func__, handle, kind, count, entries, size);                                                     \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTE, 16)
LIST(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS, 16)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, MPS, 16)
#if VARIANT >= OLD
LIST(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE, 24)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS, 24)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS, 24)
#endif
#if VARIANT >= ABI535
#define V3 (VARIANT == ABI535 ? 32 : 24)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE, V3)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS, V3)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS, V3)
#endif

#if VARIANT >= MODERN
struct detail_list {
    unsigned version, mode, count;
    void *entries;
};

/* NVML has it from Hopper on; here each GPU has it, and fail.nvmlDeviceGetRunningProcessDetailList = 3 takes it away. */
API nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t handle, struct detail_list *target) {
    static const unsigned kinds[] = {COMPUTE, GRAPHICS, MPS, COMPUTE | GRAPHICS | MPS};
    BEGIN(handle);
    REQUIRE(target->version == (sizeof *target | 1u << 24), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(target->mode < sizeof kinds / sizeof *kinds, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(!denied(&device), NVML_ERROR_NO_PERMISSION);
    struct entries entries = collect_kind(__func__, &device, kinds[target->mode], target->entries && target->count);
    nvmlReturn_t result = fill(&entries, &target->count, target->entries, 32);
    free(entries.all);
    return result;
}
#endif
