/* GPM: what a GPU's own counters say between two samples (Hopper and later, R525).
 *
 * Structures, versions and answers: pynvml.py of nvidia-ml-py 13.615.71; nvml.h (API 13), group nvmlGpmFunctions.
 * A sample holds who it is of, when, and the load of that moment; the load of the newer one is the figure of the interval.
 * Samples are handles of ours: one that was freed, or never was one, is an invalid argument.
 */
#define _GNU_SOURCE
#include "library.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#if VARIANT >= ABI535
#define SAMPLES_MOST 4096
#define SM_UTIL 2
#define APART_NS 100000000ull

struct sample {
    char gpu[NAME_SIZE];
    int gi; /* -1: the GPU itself; -2: not filled yet */
    uint64_t at_ns;
    double sm;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct sample *samples[SAMPLES_MOST];

static bool known(const struct sample *sample) {
    bool found = false;
    pthread_mutex_lock(&guard);
    for (size_t i = 0; sample && !found && i < SAMPLES_MOST; i++)
        found = samples[i] == sample;
    pthread_mutex_unlock(&guard);
    return found;
}

struct support {
    unsigned version, supported;
};

API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t handle, struct support *support) {
    BEGIN(handle);
    REQUIRE(support->version == 1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(device.gpu->gpm.known, NVML_ERROR_NOT_SUPPORTED);
    support->supported = device.gpu->gpm.value != 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleAlloc(struct sample **sample) {
    BEGIN_NODE();
    nvmlReturn_t result = NVML_ERROR_UNKNOWN;
    pthread_mutex_lock(&guard);
    for (size_t i = 0; result != NVML_SUCCESS && i < SAMPLES_MOST; i++)
        if (!samples[i]) {
            samples[i] = *sample = calloc(1, sizeof **sample);
            (*sample)->gi = -2;
            result = NVML_SUCCESS;
        }
    pthread_mutex_unlock(&guard);
    return result;
}

API nvmlReturn_t nvmlGpmSampleFree(struct sample *sample) {
    count_call(__func__);
    nvmlReturn_t result = NVML_ERROR_INVALID_ARGUMENT;
    pthread_mutex_lock(&guard);
    for (size_t i = 0; sample && i < SAMPLES_MOST; i++)
        if (samples[i] == sample) {
            samples[i] = NULL;
            free(sample);
            result = NVML_SUCCESS;
            break;
        }
    pthread_mutex_unlock(&guard);
    return result;
}

/* Does a process on `device` (a uuid) count for the GPU, or for one of its instances? */
static bool counts(const struct gpu *gpu, int gi, const char *device) {
    if (gi < 0 && strcmp(device, gpu->uuid) == 0)
        return true;
    const struct compute_instance *ci = gpu_compute(gpu, device);
    return ci && (gi < 0 || ci->gi == (unsigned)gi);
}

static double load(const struct gpu *gpu, int gi) {
    double sum = 0;
    struct allocations live = allocations_read(false);
    for (size_t i = 0; i < live.count; i++)
        if (counts(gpu, gi, live.all[i].device))
            sum += live.all[i].load.sm;
    allocations_free(&live);
    for (size_t i = 0; i < gpu->process_count; i++)
        if (counts(gpu, gi, *gpu->processes[i].device ? gpu->processes[i].device : gpu->uuid))
            sum += gpu->processes[i].load.sm;
    return sum > 100 ? 100 : sum;
}

static nvmlReturn_t fill(const struct device *device, int gi, struct sample *sample) {
    REQUIRE(device->gpu->gpm.known && device->gpu->gpm.value, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(known(sample), NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gi < 0 || gpu_instance(device->gpu, (unsigned)gi), NVML_ERROR_INVALID_ARGUMENT);
    char percent[64];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    text_copy(sample->gpu, sizeof sample->gpu, device->gpu->uuid);
    sample->gi = gi;
    sample->at_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    bool told = device_switched("gpm_sm", device, percent, sizeof percent);
    sample->sm = told ? atof(percent) : load(device->gpu, gi);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t handle, struct sample *sample) {
    BEGIN(handle);
    return fill(&device, device.ci ? (int)device.ci->gi : -1, sample);
}

API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t handle, unsigned gi, struct sample *sample) {
    BEGIN(handle);
    REQUIRE(!device.ci && device.gpu->mig == MIG_ON, NVML_ERROR_INVALID_ARGUMENT);
    return fill(&device, (int)gi, sample);
}

struct metric {
    unsigned id;
    nvmlReturn_t result;
    double value;
    const char *short_name, *long_name, *unit;
};

struct metrics_get {
    unsigned version, count;
    struct sample *older, *newer;
    struct metric metrics[];
};

API nvmlReturn_t nvmlGpmMetricsGet(struct metrics_get *asked) {
    BEGIN_NODE();
    REQUIRE(asked->version == 1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    const struct sample *older = asked->older, *newer = asked->newer;
    REQUIRE(known(older) && known(newer) && older->gi != -2 && newer->gi != -2, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(older->gi == newer->gi && strcmp(older->gpu, newer->gpu) == 0, NVML_ERROR_INVALID_ARGUMENT);
    char code[64], apart[64];
    uint64_t apart_ns = switched("gpm_apart", newer->gpu, NULL, apart, sizeof apart) ? (uint64_t)atoi(apart) * 1000000 : APART_NS;
    REQUIRE(newer->at_ns >= older->at_ns + apart_ns, NVML_ERROR_INVALID_ARGUMENT);
    bool refused = switched("gpm_metric", newer->gpu, NULL, code, sizeof code);
    for (unsigned i = 0; i < asked->count; i++) {
        struct metric *metric = &asked->metrics[i];
        metric->result = refused                  ? (nvmlReturn_t)atoi(code)
                         : metric->id != SM_UTIL ? NVML_ERROR_NOT_SUPPORTED
                                                  : NVML_SUCCESS;
        metric->value = newer->sm;
        metric->short_name = "SM";
        metric->long_name = "SM Utilization";
        metric->unit = "%";
    }
    return NVML_SUCCESS;
}
#endif
