/* What real processes hold: the alloc folder and /proc/locks in, allocations with their owners out.
 *
 * An allocation is a file that appears, by rename, with its flock already taken for writing, and never changes. So a file whose
 * lock nobody holds is over, and one that is locked by nobody we can see belongs to another PID namespace.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* "MAJOR:MINOR:" as /proc/locks prints it. It is the file system's own number, which stat does not tell on btrfs and overlay. */
static void device_of(int folder, char *prefix, size_t size) {
    char path[64], line[4096], wanted[64] = "";
    unsigned major = 0, minor = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", folder);
    FILE *info = fopen(path, "re");
    for (int mount; info && fgets(line, sizeof line, info);)
        if (sscanf(line, "mnt_id: %d", &mount) == 1)
            snprintf(wanted, sizeof wanted, "%d ", mount);
    if (info)
        fclose(info);
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    while (mounts && fgets(line, sizeof line, mounts))
        if (*wanted && strncmp(line, wanted, strlen(wanted)) == 0)
            sscanf(line, "%*d %*d %u:%u", &major, &minor);
    if (mounts)
        fclose(mounts);
    snprintf(prefix, size, "%02x:%02x:", major, minor);
}

/* The holder of the write lock on an inode, 0 for none that we can see. */
static unsigned owner_in(const char *locks, const char *device, ino_t inode) {
    char place[64];
    snprintf(place, sizeof place, " %s%lu ", device, (unsigned long)inode);
    for (const char *at = locks ? strstr(locks, place) : NULL; at; at = strstr(at + 1, place)) {
        const char *start = at;
        while (start > locks && start[-1] != '\n')
            start--;
        unsigned pid;
        if (sscanf(start, "%*d: FLOCK %*s WRITE %u ", &pid) == 1)
            return pid;
    }
    return 0;
}

static bool held(int file) {
    if (flock(file, LOCK_SH | LOCK_NB) != 0)
        return true;
    flock(file, LOCK_UN);
    return false;
}

static bool describe(struct allocation *allocation, int file, const char *name) {
    char text[512 + CGROUP_SIZE], kinds[64] = "";
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    if (length <= 0)
        return false;
    text[length] = 0;
    text_copy(allocation->name, sizeof allocation->name, name);
    text_attribute(text, "kinds", kinds, sizeof kinds);
    allocation->kinds = kinds_parse(kinds);
    allocation->bytes = text_number(text, "bytes", 0);
    allocation->tid = (unsigned)text_number(text, "tid", 0);
    text_attribute(text, "cgroup", allocation->cgroup, sizeof allocation->cgroup);
    allocation->inode = text_number(text, "inode", 0);
    char *load = text_read(state_path("load/%s", name));
    allocation->load = load_parse(load ? load : "", (struct load){0});
    free(load);
    return text_attribute(text, "device", allocation->device, sizeof allocation->device);
}

struct allocations allocations_read(bool sweep) {
    struct allocations found = {0};
    DIR *folder = still() ? NULL : opendir(state_path("alloc"));
    if (!folder)
        return found;
    char device[32];
    device_of(dirfd(folder), device, sizeof device);
    char *locks = NULL;
    for (struct dirent *entry; (entry = readdir(folder));) {
        int file = *entry->d_name == '.' ? -1 : openat(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC);
        struct stat status;
        if (file < 0)
            continue;
        if (fstat(file, &status) == 0 && held(file)) {
            /* The list of locks is read in pieces and may miss one while others come and go: look again before believing it. */
            unsigned owner = locks ? owner_in(locks, device, status.st_ino) : 0;
            for (int look = 0; !owner && look < 3 && held(file); look++) {
                free(locks);
                locks = text_read("/proc/locks");
                owner = owner_in(locks, device, status.st_ino);
            }
            struct allocation allocation = {.owner = owner};
            if (describe(&allocation, file, entry->d_name)) {
                found.all = realloc(found.all, (found.count + 1) * sizeof *found.all);
                found.all[found.count++] = allocation;
            }
        } else if (sweep) {
            unlinkat(dirfd(folder), entry->d_name, 0);
            unlink(state_path("load/%s", entry->d_name));
        }
        close(file);
    }
    free(locks);
    closedir(folder);
    return found;
}

void allocations_free(struct allocations *allocations) {
    free(allocations->all);
    *allocations = (struct allocations){0};
}

static bool in_pool(const struct gpu *gpu, const struct gpu_instance *gi, const char *device) {
    if (strcmp(device, gpu->uuid) == 0)
        return !gi;
    const struct compute_instance *ci = gpu_compute(gpu, device);
    return ci && (!gi || ci->gi == gi->id);
}

uint64_t pool_used(const struct gpu *gpu, const struct gpu_instance *gi, const struct allocations *allocations) {
    uint64_t used = gi ? 0 : gpu->other.value;
    for (size_t i = 0; i < allocations->count; i++)
        if (in_pool(gpu, gi, allocations->all[i].device))
            used += allocations->all[i].bytes;
    for (size_t i = 0; i < gpu->process_count; i++) {
        const struct injected_process *process = &gpu->processes[i];
        const char *device = *process->device ? process->device : gpu->uuid;
        if (process->charged && process->bytes != UNKNOWN_BYTES && in_pool(gpu, gi, device))
            used += process->bytes;
    }
    return used;
}
