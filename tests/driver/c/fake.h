/* A stand-in for NVIDIA's driver: what the library and the workload share.
 *
 * What is modelled, and after which source:
 *   structures, versions, size-then-data protocol   pynvml.py of nvidia-ml-py 13.615.71; nvml.h (API 13)
 *   32-byte _v3 entries of 535.43 - 535.86          nvitop#75, gpustat#157, go-nvml#75
 *   who is charged: the process that opened the device, even when it is dead and a forked child keeps the descriptor;
 *   owners outside the reader's PID namespace are dropped; some releases record a thread id
 *                                                   open-gpu-kernel-modules: os-interface.c, gpu_rmapi.c; nvitop#152
 *   one process in several lists, each time with its whole memory        k8s-device-plugin#1299, #720
 *   MIG: slots with holes, pool per GPU instance, parent handle sums     MIG user guide; subdevice_ctrl_gpu_kernel.c
 *   MIG: who cannot open the device of mig/monitor is told of no sum, and of those instances alone whose own device, of
 *   gi/access, it can open                         mig_monitor_session.c, osRmCapAcquire in os.c, subdevice_ctrl_gpu_kernel.c;
 *                                                   nvidia-container-toolkit#842, #1740
 *   utilization: cursor in microseconds, NOT_FOUND when idle, 72 samples in 10 s, odd timestamps, more than 100 %
 *                                                   nvtop#91, nvtop#110, go-nvml#51
 *   MemoryInfo v1 counts reserved inside used, v2 apart                  gpustat#141
 *   error codes and what brings them                                     nvml.h; nvidia-docker#1730; DCGM
 *   fields: each with an answer of its own, a scope for NVLink 5, memory temperature typed as a double by R545
 *                                                   nvml.h; DcgmCacheManager.cpp, DcgmCMUtils.cpp of DCGM 4.6.0; DCGM#311
 *   costs of calls                                                       MangoHud#2104
 *
 * The kernel plays the driver's bookkeeping: an allocation is a file with a flock held. /proc/locks names the owner in the
 * reader's PID namespace, leaves out whom it cannot see, and goes on naming a dead owner while a child holds the descriptor.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NAME_SIZE 96
#define CGROUP_SIZE 1024
#define UNKNOWN_BYTES UINT64_MAX
#define GPUS_MOST 64

/* text.c: files and words ------------------------------------------------------------------------------------------- */

/* The path of a file in the state folder, in a buffer of the calling thread that the next call overwrites. */
/* Is $FAKE_NVML_STILL set? Then the node never changes: no switches, no allocations, the node file is read once. */
bool still(void);
const char *state_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A whole file as a string to be freed, or NULL. */
char *text_read(const char *path);
bool text_replace(const char *path, const char *text);
void text_copy(char *target, size_t size, const char *source);
/* The value of "key=value" among the words of a line, or false. */
bool text_attribute(const char *line, const char *key, char *value, size_t size);
uint64_t text_number(const char *line, const char *key, uint64_t otherwise);
/* "12", "12KiB", "12MiB", "12GiB"; false when it is none of these. */
bool text_size(const char *text, uint64_t *bytes);
/* Take the next line off *rest, without its end and without spaces around; NULL at the end. */
char *text_line(char **rest);

/* node.c: what stands in the `node` file ----------------------------------------------------------------------------- */

enum { COMPUTE = 1, GRAPHICS = 2, MPS = 4 };

struct load {
    unsigned sm, mem, enc, dec, jpg, ofa;
};

#define NUMBERS(X)                                                                                                      \
    X(minor) X(total) X(reserved) X(other) X(mig_slots) X(power_mw) X(energy_mj) X(temperature) X(clock_graphics)      \
    X(clock_sm) X(clock_memory) X(clock_video) X(throttle) X(ecc_corrected) X(ecc_uncorrected) X(util_gpu)             \
    X(util_memory) X(util_encoder) X(util_decoder) X(compute_mode) X(persistence) X(gpm) X(events) X(power_limit_mw)  \
    X(power_default_mw) X(limit_shutdown) X(limit_slowdown) X(limit_memory_max) X(limit_gpu_max)

struct number {
    bool known, automatic;
    uint64_t value;
};

struct gpu_instance {
    unsigned id, sms, slices;
    char profile[NAME_SIZE];
    uint64_t memory, reserved;
};

struct compute_instance {
    unsigned slot, gi, id, sms, slices;
    char uuid[NAME_SIZE];
};

struct injected_process {
    unsigned pid, kinds;
    uint64_t bytes;
    bool charged;
    char device[NAME_SIZE];
    struct load load;
};

struct injected_sample {
    unsigned pid;
    bool absolute;
    uint64_t time;
    struct load load;
};

/* One field of GetFieldValues. `result` is its own answer; `silent`: the driver leaves the entry as it was. */
struct field {
    unsigned id, scope, type;
    int result;
    bool silent;
    uint64_t value;
};

/* Banks of memory by how many spare rows they have left: all, most, some, few, none. */
struct banks {
    bool known;
    unsigned max, high, partial, low, none;
};

enum mig_mode { MIG_UNSUPPORTED, MIG_OFF, MIG_ON };

struct gpu {
    char uuid[NAME_SIZE], name[NAME_SIZE], pci[32], vbios[32];
    struct banks banks;
    enum mig_mode mig, mig_pending;
#define X(key) struct number key;
    NUMBERS(X)
#undef X
    struct gpu_instance *instances;
    struct compute_instance *computes;
    struct injected_process *processes;
    struct injected_sample *samples;
    struct field *fields;
    size_t instance_count, compute_count, process_count, sample_count, field_count;
};

struct node {
    int references;
    char driver[80], nvml[80], cgroups[512]; /* the folder that plays the unified hierarchy; "": the real one */
    int cuda;
    uint64_t sample_period;
    struct gpu *gpus;
    size_t gpu_count;
};

/* The node as it is now, to be given back; NULL when there is none (no driver). */
const struct node *node_open(void);
void node_close(const struct node *node);
const struct gpu *node_gpu(const struct node *node, const char *uuid);
const struct compute_instance *gpu_compute(const struct gpu *gpu, const char *uuid);
const struct gpu_instance *gpu_instance(const struct gpu *gpu, unsigned id);
unsigned kinds_parse(const char *text);
struct load load_parse(const char *line, struct load otherwise);

/* allocations.c: what real processes hold ------------------------------------------------------------------------------ */

struct allocation {
    char name[256], device[NAME_SIZE], cgroup[CGROUP_SIZE];
    uint64_t bytes, inode; /* inode: of the cgroup, where that can be seen */
    unsigned kinds, tid;
    unsigned owner; /* in the reader's PID namespace; 0: held by somebody it cannot see */
    struct load load;
};

struct allocations {
    struct allocation *all;
    size_t count;
};

/* All that is held now. `sweep`: also remove what nobody holds any more (the caller has the capacity lock). */
struct allocations allocations_read(bool sweep);
void allocations_free(struct allocations *allocations);
/* Bytes in use in one pool: a GPU instance, or (gi NULL) the GPU with all its instances. */
uint64_t pool_used(const struct gpu *gpu, const struct gpu_instance *gi, const struct allocations *allocations);

/* limits.c: how much a cgroup may hold of a GPU; paths of cgroups as /proc/PID/cgroup has them ----------------------------- */

struct limit {
    char gpu[NAME_SIZE], cgroup[CGROUP_SIZE];
    uint64_t soft, hard, inode; /* hard: UNKNOWN_BYTES is none; inode: of the cgroup, which its name does not tell */
};

/* The cgroup of this process, and its inode, or 0: in a private namespace the path is "/", but /sys/fs/cgroup has the inode.
 * $FAKE_NVML_CGROUP instead, where a test without root plays it. */
uint64_t cgroup_of_self(char *path, size_t size);
/* Bytes that a limited cgroup and all below it hold. */
uint64_t limit_used(const struct limit *limit, const struct allocations *allocations);
bool limit_read(const char *gpu, const char *cgroup, struct limit *limit);
bool limit_write(const struct limit *limit);
void limit_remove(const char *gpu, const char *cgroup);
/* Do so many bytes more fit below all limits that hold for this process? */
bool limits_allow(const char *gpu, uint64_t bytes, const struct allocations *allocations);
