/* The calls of R615 that limit a cgroup: who may, where, and what is told of it. */
#define _GNU_SOURCE
#include "library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if VARIANT >= MODERN
#define FIRST_DRIVER 615

struct set_limits {
    const char *cgroup;
    unsigned long long soft, hard;
};

struct get_limits {
    const char *cgroup;
    unsigned long long soft, hard, used;
};

/* Where the unified hierarchy begins in a path: at `cgroups` of the node file, or at the deepest mount of cgroup2. */
static size_t root_of(const struct node *node, const char *path) {
    size_t found = 0;
    if (*node->cgroups)
        return strncmp(path, node->cgroups, strlen(node->cgroups)) == 0 ? strlen(node->cgroups) : 0;
    char *text = text_read("/proc/self/mountinfo"), *rest = text;
    for (char *line; (line = text_line(&rest));) {
        char mount[512];
        size_t length;
        if (strstr(line, " - cgroup2 ") && sscanf(line, "%*s %*s %*s %*s %511s", mount) == 1 &&
            (length = strlen(mount)) > found && strncmp(path, mount, length) == 0 && strchr("/", path[length]))
            found = length;
    }
    free(text);
    return found;
}

/* Find out which cgroup is meant. One that is gone has no limit any more, nor has another one of its name. */
static nvmlReturn_t find(const struct device *device, const char *path, struct limit *limit, bool *set) {
    struct stat status;
    REQUIRE(path, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(atoi(device->node->driver) >= FIRST_DRIVER && !device->ci && device->gpu->mig != MIG_ON,
            NVML_ERROR_NOT_SUPPORTED);
    size_t root = root_of(device->node, path);
    REQUIRE(root, NVML_ERROR_NOT_SUPPORTED); /* version 1, or no cgroup */
    *limit = (struct limit){.hard = UNKNOWN_BYTES};
    text_copy(limit->gpu, sizeof limit->gpu, device->gpu->uuid);
    text_copy(limit->cgroup, sizeof limit->cgroup, path[root] ? path + root : "/");
    *set = limit_read(limit->gpu, limit->cgroup, limit);
    bool there = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    if (*set && (!there || limit->inode != status.st_ino)) {
        limit_remove(limit->gpu, limit->cgroup);
        *set = false;
        limit->soft = 0;
        limit->hard = UNKNOWN_BYTES;
    }
    REQUIRE(there, NVML_ERROR_NOT_FOUND);
    limit->inode = status.st_ino;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t handle, const struct set_limits *wanted) {
    BEGIN(handle);
    struct limit limit;
    bool set;
    REQUIRE(wanted, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(geteuid() == 0 || device_switched("limits_for_all", &device, NULL, 0), NVML_ERROR_NO_PERMISSION);
    nvmlReturn_t found = find(&device, wanted->cgroup, &limit, &set);
    REQUIRE(found == NVML_SUCCESS, found);
    limit.soft = wanted->soft;
    limit.hard = wanted->hard;
    REQUIRE(limit.soft <= limit.hard, NVML_ERROR_INVALID_ARGUMENT);
    if (limit.soft == 0 && limit.hard == UNKNOWN_BYTES)
        limit_remove(limit.gpu, limit.cgroup);
    else
        REQUIRE(limit_write(&limit), NVML_ERROR_UNKNOWN);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t handle, struct get_limits *told) {
    BEGIN(handle);
    struct limit limit;
    bool set;
    char value[64];
    REQUIRE(told, NVML_ERROR_INVALID_ARGUMENT);
    nvmlReturn_t found = find(&device, told->cgroup, &limit, &set);
    REQUIRE(found == NVML_SUCCESS, found);
    if (!set && device_switched("limits_unset", &device, value, sizeof value))
        return (nvmlReturn_t)atoi(value);
    struct allocations allocations = allocations_read(false);
    told->soft = limit.soft;
    told->hard = limit.hard;
    told->used = limit_used(&limit, &allocations);
    allocations_free(&allocations);
    if (set && device_switched("limits_drift", &device, value, sizeof value))
        told->hard += strtoull(value, NULL, 10);
    return NVML_SUCCESS;
}
#endif
