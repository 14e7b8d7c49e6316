/* Utilization of devices and of processes. Under MIG there is none.
 *
 * The kernel's ring has 72 samples in 10 s. Here the beat is sample_period_us: a busy process has one sample per beat, whose time is
 * that of the beat less a little that differs from process to process.
 */
#define _GNU_SOURCE
#include "library.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sample {
    unsigned pid;
    uint64_t time;
    struct load load;
};

struct samples {
    struct sample *all;
    size_t count;
};

static void add(struct load *sum, const struct load *load) {
    sum->sm += load->sm;
    sum->mem += load->mem;
    sum->enc += load->enc;
    sum->dec += load->dec;
    sum->jpg += load->jpg;
    sum->ofa += load->ofa;
}

static void push(struct samples *samples, struct sample sample) {
    samples->all = realloc(samples->all, (samples->count + 1) * sizeof sample);
    samples->all[samples->count++] = sample;
}

static bool idle(const struct load *load) {
    return !(load->sm || load->mem || load->enc || load->dec || load->jpg || load->ofa);
}

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

/* One entry per busy process. Samples name processes also where the lists name threads. */
static struct samples busy(const struct gpu *gpu) {
    struct samples samples = {0};
    struct allocations live = allocations_read(false);
    for (size_t i = 0; i < live.count; i++) {
        const struct allocation *allocation = &live.all[i];
        if (!allocation->owner || strcmp(allocation->device, gpu->uuid) != 0 || idle(&allocation->load))
            continue;
        size_t at = 0;
        while (at < samples.count && samples.all[at].pid != allocation->owner)
            at++;
        if (at == samples.count)
            push(&samples, (struct sample){.pid = allocation->owner});
        add(&samples.all[at].load, &allocation->load);
    }
    allocations_free(&live);
    for (size_t i = 0; i < gpu->process_count; i++)
        if (!idle(&gpu->processes[i].load))
            push(&samples, (struct sample){.pid = gpu->processes[i].pid, .load = gpu->processes[i].load});
    return samples;
}

/* What is newer than the cursor. An injected sample with an absolute time is always given: the test decides. */
static struct samples newer(const char *function, const struct device *device, uint64_t cursor, bool data) {
    char word[64] = "";
    bool odd = device_switched("util_timestamps", device, word, sizeof word);
    uint64_t now = now_us(), period = device->node->sample_period, beat = now / period * period;
    struct samples all = busy(device->gpu), wanted = {0};
    for (size_t i = 0; i < all.count; i++) {
        all.all[i].time = odd ? (strcmp(word, "zero") == 0 ? 0 : 1000000) : beat - i % period;
        if (odd || all.all[i].time > cursor)
            push(&wanted, all.all[i]);
    }
    free(all.all);
    for (size_t i = 0; i < device->gpu->sample_count; i++) {
        const struct injected_sample *sample = &device->gpu->samples[i];
        uint64_t time = sample->absolute ? sample->time : now - sample->time;
        if (sample->absolute || time > cursor)
            push(&wanted, (struct sample){sample->pid, time, sample->load});
    }
    for (unsigned more = data ? growth(function, device) : 0; more; more--)
        push(&wanted, (struct sample){.pid = (1u << 22) + more, .time = beat, .load = {.sm = 1}});
    return wanted;
}

/* SUCCESS: *samples is to be written. With too little room: the count that would do. */
static nvmlReturn_t sampled(const char *function, const struct device *device, uint64_t cursor, unsigned *count,
                            bool data, struct samples *samples) {
    REQUIRE(device->gpu->mig != MIG_ON, NVML_ERROR_NOT_SUPPORTED);
    if (!data && device_switched("util_empty_success", device, NULL, 0)) {
        *count = 0;
        return NVML_SUCCESS;
    }
    *samples = newer(function, device, cursor, data);
    unsigned room = data ? *count : 0;
    *count = (unsigned)samples->count;
    REQUIRE(samples->count, NVML_ERROR_NOT_FOUND);
    return samples->count <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

struct process_sample {
    unsigned pid;
    unsigned long long time;
    unsigned sm, mem, enc, dec;
};

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, struct process_sample *target, unsigned *count,
                                                 unsigned long long cursor) {
    BEGIN(handle);
    bool told;
    if (miscounts(__func__, device.gpu->uuid, NULL, count, &told))
        return told ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
    struct samples samples = {0};
    nvmlReturn_t result = sampled(__func__, &device, cursor, count, target && *count, &samples);
    for (size_t i = 0; result == NVML_SUCCESS && i < samples.count; i++) {
        const struct sample *from = &samples.all[i];
        target[i] = (struct process_sample){from->pid,      from->time,     from->load.sm,
                                            from->load.mem, from->load.enc, from->load.dec};
    }
    free(samples.all);
    return result;
}

#if VARIANT >= MODERN
struct process_info {
    unsigned long long time;
    unsigned pid, sm, mem, enc, dec, jpg, ofa;
};

struct processes_info {
    unsigned version, count;
    unsigned long long cursor;
    struct process_info *entries;
};

API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t handle, struct processes_info *target) {
    BEGIN(handle);
    REQUIRE(target->version == (sizeof *target | 1u << 24), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    struct samples samples = {0};
    bool data = target->entries && target->count;
    nvmlReturn_t result = sampled(__func__, &device, target->cursor, &target->count, data, &samples);
    for (size_t i = 0; result == NVML_SUCCESS && i < samples.count; i++) {
        const struct load *load = &samples.all[i].load;
        target->entries[i] = (struct process_info){samples.all[i].time, samples.all[i].pid, load->sm,  load->mem,
                                                   load->enc,           load->dec,          load->jpg, load->ofa};
    }
    free(samples.all);
    return result;
}
#endif

static unsigned at_most_100(unsigned value) { return value > 100 ? 100 : value; }

static unsigned resolve(const struct number *number, unsigned sum) {
    return number->automatic ? at_most_100(sum) : (unsigned)number->value;
}

static struct load device_load(const struct gpu *gpu) {
    struct samples samples = busy(gpu);
    struct load sum = {0};
    for (size_t i = 0; i < samples.count; i++)
        add(&sum, &samples.all[i].load);
    free(samples.all);
    return sum;
}

struct rates {
    unsigned gpu, memory;
};

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, struct rates *rates) {
    BEGIN(handle);
    REQUIRE(device.gpu->mig != MIG_ON && device.gpu->util_gpu.known, NVML_ERROR_NOT_SUPPORTED);
    struct load sum = device_load(device.gpu);
    *rates = (struct rates){resolve(&device.gpu->util_gpu, sum.sm), resolve(&device.gpu->util_memory, sum.mem)};
    return NVML_SUCCESS;
}

static nvmlReturn_t engine(const struct device *device, const struct number *number, bool encoder, unsigned *percent,
                           unsigned *period_us) {
    REQUIRE(device->gpu->mig != MIG_ON && number->known, NVML_ERROR_NOT_SUPPORTED);
    struct load sum = device_load(device->gpu);
    *percent = resolve(number, encoder ? sum.enc : sum.dec);
    *period_us = (unsigned)device->node->sample_period;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t handle, unsigned *percent, unsigned *period_us) {
    BEGIN(handle);
    return engine(&device, &device.gpu->util_encoder, true, percent, period_us);
}

API nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t handle, unsigned *percent, unsigned *period_us) {
    BEGIN(handle);
    return engine(&device, &device.gpu->util_decoder, false, percent, period_us);
}
