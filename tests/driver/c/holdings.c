/* Allocate on a device: a locked file in the alloc folder, if the pool has room. */
#define _GNU_SOURCE
#include "holdings.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

const char OUT_OF_MEMORY[] = "out of memory";
static const char NO_DEVICE[] = "no such device";

struct place {
    const struct gpu *gpu;
    const struct compute_instance *ci;
};

/* Item N of NVIDIA_VISIBLE_DEVICES, without "::replica"; "all" is every GPU in order. */
static bool visible_item(unsigned wanted, char *item, size_t size) {
    const char *list = getenv("NVIDIA_VISIBLE_DEVICES");
    if (!list || !*list || strcmp(list, "none") == 0 || strcmp(list, "void") == 0)
        return false;
    if (strcmp(list, "all") == 0)
        return snprintf(item, size, "%u", wanted) > 0;
    for (; wanted; wanted--, list++)
        if (!(list = strchr(list, ',')))
            return false;
    size_t length = strcspn(list, ",");
    text_copy(item, length + 1 < size ? length + 1 : size, list);
    char *replica = strstr(item, "::");
    if (replica)
        *replica = 0;
    return *item != 0;
}

static struct place find(const struct node *node, const char *device) {
    char item[NAME_SIZE];
    if (strncmp(device, "visible", 7) == 0) {
        if (!visible_item(device[7] == ':' ? (unsigned)atoi(device + 8) : 0, item, sizeof item))
            return (struct place){0};
        device = item;
    }
    if (isdigit((unsigned char)*device)) {
        size_t index = strtoul(device, NULL, 10);
        return (struct place){.gpu = index < node->gpu_count ? &node->gpus[index] : NULL};
    }
    for (size_t i = 0; i < node->gpu_count; i++) {
        const struct compute_instance *ci = gpu_compute(&node->gpus[i], device);
        if (ci || strcmp(node->gpus[i].uuid, device) == 0)
            return (struct place){.gpu = &node->gpus[i], .ci = ci};
    }
    return (struct place){0};
}

/* The device file as a process of the real driver has it open; never NVIDIA's own (major 195) on a machine with a GPU. */
static int open_device_file(const char *name) {
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/dev/%s", name);
    if (stat(path, &status) == 0 && !(S_ISCHR(status.st_mode) && major(status.st_rdev) == 195))
        return open(path, O_RDWR);
    return open(state_path("dev/%s", name), O_RDONLY);
}

static const char *create(struct holding *holding, const char *name, const char *kinds) {
    char draft[600], path[600], cgroup[CGROUP_SIZE], text[512 + CGROUP_SIZE];
    uint32_t token;
    if (getrandom(&token, sizeof token, 0) != sizeof token)
        return "no random number";
    snprintf(holding->name, sizeof holding->name, "%.60s-%08x", name, token);
    text_copy(draft, sizeof draft, state_path("alloc/.%s", holding->name));
    text_copy(path, sizeof path, state_path("alloc/%s", holding->name));
    uint64_t inode = cgroup_of_self(cgroup, sizeof cgroup);
    int length = snprintf(text, sizeof text, "device=%s bytes=%llu kinds=%s tid=%d inode=%llu cgroup=%s\n",
                          holding->device, (unsigned long long)holding->bytes, kinds, holding->tid,
                          (unsigned long long)inode, cgroup);
    /* Not close-on-exec: the driver keeps charging through an exec while the descriptor lives. */
    holding->file = open(draft, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (holding->file < 0)
        return "cannot write in the alloc folder";
    if (fchmod(holding->file, 0666) || flock(holding->file, LOCK_EX | LOCK_NB) ||
        write(holding->file, text, (size_t)length) != length || rename(draft, path)) {
        close(holding->file);
        return "cannot lock in the alloc folder";
    }
    return NULL;
}

static void write_load(const struct holding *holding) {
    char text[256];
    const struct load *load = &holding->load;
    snprintf(text, sizeof text, "sm=%u mem=%u enc=%u dec=%u jpg=%u ofa=%u\n", load->sm, load->mem, load->enc, load->dec,
             load->jpg, load->ofa);
    text_replace(state_path("load/%s", holding->name), text);
}

static bool has_room(struct place place, uint64_t bytes) {
    const struct gpu_instance *gi = place.ci ? gpu_instance(place.gpu, place.ci->gi) : NULL;
    struct allocations allocations = allocations_read(true);
    uint64_t total = gi ? gi->memory : place.gpu->total.known ? place.gpu->total.value : UINT64_MAX;
    uint64_t taken = pool_used(place.gpu, gi, &allocations) + (gi ? gi->reserved : place.gpu->reserved.value);
    bool allowed = place.ci || limits_allow(place.gpu->uuid, bytes, &allocations);
    allocations_free(&allocations);
    return allowed && taken <= total && bytes <= total - taken;
}

const char *holdings_take(struct holdings *mine, const char *name, const char *device, uint64_t bytes,
                          const char *kinds, struct load load) {
    if (mine->count == HOLDINGS_MOST)
        return "too many allocations in one process";
    const struct node *node = node_open();
    struct place place = node ? find(node, device) : (struct place){0};
    const char *problem = !place.gpu ? NO_DEVICE : NULL;
    if (!problem && place.gpu->mig == MIG_ON && !place.ci)
        problem = "MIG is on: name a MIG device";
    int lock = problem ? -1 : open(state_path("alloc/.lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (!problem && (lock < 0 || flock(lock, LOCK_EX) != 0))
        problem = "cannot take the capacity lock";
    struct holding *holding = &mine->all[mine->count];
    if (!problem && !has_room(place, bytes))
        problem = OUT_OF_MEMORY;
    if (!problem) {
        *holding = (struct holding){.owner = getpid(), .tid = gettid(), .bytes = bytes, .load = load};
        text_copy(holding->device, sizeof holding->device, place.ci ? place.ci->uuid : place.gpu->uuid);
        problem = create(holding, name, kinds);
    }
    if (lock >= 0) {
        fchmod(lock, 0666);
        close(lock);
    }
    if (!problem) {
        char file[32];
        snprintf(file, sizeof file, "nvidia%u", (unsigned)place.gpu->minor.value);
        holding->devices[0] = open_device_file(file);
        holding->devices[1] = open_device_file("nvidiactl");
        write_load(holding);
        mine->count++;
    }
    if (node)
        node_close(node);
    return problem;
}

static void forget(const struct holding *holding) {
    close(holding->file);
    for (int i = 0; i < 2; i++)
        if (holding->devices[i] >= 0)
            close(holding->devices[i]);
}

const char *holdings_free(struct holdings *mine, const char *device) {
    char uuid[NAME_SIZE] = "";
    if (*device) {
        const struct node *node = node_open();
        struct place place = node ? find(node, device) : (struct place){0};
        if (place.gpu)
            text_copy(uuid, sizeof uuid, place.ci ? place.ci->uuid : place.gpu->uuid);
        if (node)
            node_close(node);
        if (!*uuid)
            return NO_DEVICE;
    }
    size_t kept = 0;
    for (size_t i = 0; i < mine->count; i++) {
        struct holding *holding = &mine->all[i];
        if (*uuid && strcmp(uuid, holding->device) != 0) {
            mine->all[kept++] = *holding;
            continue;
        }
        unlink(state_path("alloc/%s", holding->name));
        unlink(state_path("load/%s", holding->name));
        forget(holding);
    }
    mine->count = kept;
    return NULL;
}

void holdings_forget(struct holdings *mine) {
    for (size_t i = 0; i < mine->count; i++)
        forget(&mine->all[i]);
    mine->count = 0;
}

void holdings_load(struct holdings *mine, const char *words) {
    for (size_t i = 0; i < mine->count; i++) {
        mine->all[i].load = load_parse(words, mine->all[i].load);
        write_load(&mine->all[i]);
    }
}
