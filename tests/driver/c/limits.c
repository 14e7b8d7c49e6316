/* How much of a GPU a cgroup may hold (R615): the folder `limits`, one file for each cgroup and GPU. Both sides read it: the
 * library, which sets and tells, and the workload, whose allocation fails.
 *
 * As in the kernel's dmem controller: what is allocated is charged to the cgroup of that moment, limits of all cgroups above hold,
 * and a limit below what is held takes nothing away, it refuses all that is new.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define CGROUP2 0x63677270

uint64_t cgroup_of_self(char *path, size_t size) {
    char seen[CGROUP_SIZE];
    struct stat status = {0};
    struct statfs mounted;
    text_copy(path, size, "/");
    const char *played = getenv("FAKE_NVML_CGROUP");
    char *text = played ? NULL : text_read("/proc/self/cgroup"), *rest = text;
    for (char *line; (line = text_line(&rest));)
        if (strncmp(line, "0::", 3) == 0) {
            /* A private namespace tells what is elsewhere as seen from its own root; tests put it below another first folder. */
            for (line += 3; strncmp(line, "/../", 4) == 0;)
                line += 3;
            text_copy(path, size, line);
        }
    if (played)
        text_copy(path, size, played);
    free(text);
    snprintf(seen, sizeof seen, "/sys/fs/cgroup%.900s", path);
    bool visible = !played && statfs("/sys/fs/cgroup", &mounted) == 0 && mounted.f_type == CGROUP2;
    return visible && stat(seen, &status) == 0 ? status.st_ino : 0;
}

static bool within(const char *cgroup, const char *limited) {
    size_t length = strcmp(limited, "/") == 0 ? 0 : strlen(limited);
    return strncmp(cgroup, limited, length) == 0 && (cgroup[length] == '/' || cgroup[length] == 0);
}

static bool holds_for(const struct limit *limit, const char *cgroup, uint64_t inode) {
    return within(cgroup, limit->cgroup) || (inode && inode == limit->inode);
}

uint64_t limit_used(const struct limit *limit, const struct allocations *allocations) {
    uint64_t used = 0;
    for (size_t i = 0; i < allocations->count; i++) {
        const struct allocation *one = &allocations->all[i];
        if (strcmp(one->device, limit->gpu) == 0 && holds_for(limit, one->cgroup, one->inode))
            used += one->bytes;
    }
    return used;
}

/* The path of the file that has the limit of a cgroup; a name of fixed length, since those of cgroups have any. */
static const char *place(const char *gpu, const char *cgroup) {
    uint64_t hash = 14695981039346656037u;
    for (const char *part[] = {gpu, "\n", cgroup, NULL}, **at = part; *at; at++)
        for (const char *c = *at; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return state_path("limits/%016llx", (unsigned long long)hash);
}

static bool parse(char *text, struct limit *limit) {
    char *rest = text, *numbers = text_line(&rest), *cgroup = text_line(&rest);
    if (!numbers || !cgroup)
        return false;
    limit->soft = text_number(numbers, "soft", 0);
    limit->hard = text_number(numbers, "hard", UNKNOWN_BYTES);
    limit->inode = text_number(numbers, "inode", 0);
    text_copy(limit->cgroup, sizeof limit->cgroup, cgroup);
    return text_attribute(numbers, "gpu", limit->gpu, sizeof limit->gpu);
}

bool limit_read(const char *gpu, const char *cgroup, struct limit *limit) {
    char *text = text_read(place(gpu, cgroup));
    bool found = text && parse(text, limit);
    free(text);
    return found;
}

bool limit_write(const struct limit *limit) {
    char text[2 * CGROUP_SIZE];
    snprintf(text, sizeof text, "gpu=%s soft=%llu hard=%llu inode=%llu\n%s\n", limit->gpu, (unsigned long long)limit->soft,
             (unsigned long long)limit->hard, (unsigned long long)limit->inode, limit->cgroup);
    return text_replace(place(limit->gpu, limit->cgroup), text);
}

void limit_remove(const char *gpu, const char *cgroup) { unlink(place(gpu, cgroup)); }

bool limits_allow(const char *gpu, uint64_t bytes, const struct allocations *allocations) {
    char mine[CGROUP_SIZE];
    uint64_t inode = cgroup_of_self(mine, sizeof mine);
    DIR *folder = opendir(state_path("limits"));
    bool allowed = true;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct limit limit;
        char *text = *entry->d_name == '.' ? NULL : text_read(state_path("limits/%s", entry->d_name));
        if (text && parse(text, &limit) && strcmp(limit.gpu, gpu) == 0 && holds_for(&limit, mine, inode)) {
            uint64_t used = limit_used(&limit, allocations);
            allowed = allowed && used <= limit.hard && bytes <= limit.hard - used;
        }
        free(text);
    }
    if (folder)
        closedir(folder);
    return allowed;
}
