/* A stand-in for libcuda.so.1 on the fake driver's node: what the command in ../__main__.py calls, and no more.
 *
 * Memory is held as the workload holds it (holdings.c), so that the fake NVML sees it. A kernel takes its time by sleeping;
 * how busy that makes the SMs is told to the fake NVML by what the last period was. Codes are those of cuda.h.
 */
#define _GNU_SOURCE
#include "holdings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))
#define CONTEXT (300ull << 20)
#define MULTIPROCESSORS 132
#define BLOCKS_MOST 128

enum { CUDA_SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY_CODE = 2, NO_DEVICE = 100, INVALID_CONTEXT = 201 };

API const int gpusteward_fake_cuda = 1;

/* The one MIG device that is shown to this process: CUDA shows one, and only to who asks for it. NULL: whole GPUs. */
static const char *instance(void) {
    const char *asked = getenv("CUDA_VISIBLE_DEVICES");
    return asked && strncmp(asked, "MIG-", 4) == 0 ? asked : NULL;
}

static struct holdings *blocks[BLOCKS_MOST];
static struct holdings *context; /* the last one made: its load is the process's */
static int device_index;
static uint64_t started_ns, until_ns;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int hold(struct holdings **target, uint64_t size) {
    char index[16];
    snprintf(index, sizeof index, "%d", device_index);
    *target = calloc(1, sizeof **target);
    const char *device = instance() ? instance() : index;
    const char *problem = holdings_take(*target, "cuda", device, size, "compute", (struct load){0});
    if (!problem)
        return CUDA_SUCCESS;
    free(*target);
    *target = NULL;
    return problem == OUT_OF_MEMORY ? OUT_OF_MEMORY_CODE : NO_DEVICE;
}

API int cuInit(unsigned flags) {
    (void)flags;
    const struct node *node = node_open();
    if (node)
        node_close(node);
    return node ? CUDA_SUCCESS : NO_DEVICE;
}

API int cuDriverGetVersion(int *version) {
    const struct node *node = node_open();
    *version = node ? node->cuda : 0;
    if (node)
        node_close(node);
    return CUDA_SUCCESS;
}

API int cuDeviceGetCount(int *count) {
    const struct node *node = node_open();
    *count = !node ? 0 : instance() ? 1 : (int)node->gpu_count;
    if (node)
        node_close(node);
    return CUDA_SUCCESS;
}

API int cuDeviceGet(int *device, int index) {
    *device = index;
    return CUDA_SUCCESS;
}

API int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    const struct node *node = node_open();
    int code = node && (size_t)device < node->gpu_count ? CUDA_SUCCESS : NO_DEVICE;
    if (code == CUDA_SUCCESS) {
        size_t at = 0;
        for (const char *text = (instance() ? instance() : node->gpus[device].uuid) + 4; *text && at < 32; text++) {
            char digit[2] = {*text, 0};
            if (*text == '-')
                continue;
            unsigned value = (unsigned)strtoul(digit, NULL, 16);
            uuid[at / 2] = (unsigned char)(at % 2 ? uuid[at / 2] | value : value << 4);
            at++;
        }
    }
    if (node)
        node_close(node);
    return code;
}

API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 16 ? MULTIPROCESSORS : 0;
    return CUDA_SUCCESS;
}

API int cuCtxCreate_v2(void **made, unsigned flags, int device) {
    (void)flags;
    device_index = device;
    int code = hold(&context, CONTEXT);
    *made = context;
    return code;
}

API int cuMemAlloc_v2(uint64_t *address, size_t size) {
    if (!context)
        return INVALID_CONTEXT;
    for (size_t i = 0; i < BLOCKS_MOST; i++)
        if (!blocks[i]) {
            *address = i + 1;
            return hold(&blocks[i], size);
        }
    return OUT_OF_MEMORY_CODE;
}

API int cuMemFree_v2(uint64_t address) {
    if (!address || address > BLOCKS_MOST || !blocks[address - 1])
        return INVALID_VALUE;
    holdings_free(blocks[address - 1], "");
    free(blocks[address - 1]);
    blocks[address - 1] = NULL;
    return CUDA_SUCCESS;
}

API int cuModuleLoadData(void **module, const char *image) {
    *module = (void *)image;
    return strstr(image, ".entry spin(") ? CUDA_SUCCESS : INVALID_VALUE;
}

API int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return strcmp(name, "spin") == 0 ? CUDA_SUCCESS : INVALID_VALUE;
}

API int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz,
                       unsigned shared, void *stream, void **parameters, void **extra) {
    (void)function, (void)y, (void)z, (void)tx, (void)ty, (void)tz, (void)shared, (void)stream, (void)extra;
    if (!context)
        return INVALID_CONTEXT;
    uint64_t now = now_ns(), wanted = *(uint64_t *)parameters[0], period = started_ns ? now - started_ns : 0;
    unsigned full = x >= MULTIPROCESSORS ? 100 : 100 * x / MULTIPROCESSORS;
    if (period) {
        char words[32];
        uint64_t percent = wanted >= period ? full : full * wanted / period;
        snprintf(words, sizeof words, "sm=%llu", (unsigned long long)percent);
        holdings_load(context, words);
    }
    started_ns = now;
    until_ns = now + wanted;
    return CUDA_SUCCESS;
}

API int cuCtxSynchronize(void) {
    for (uint64_t now; (now = now_ns()) < until_ns;)
        nanosleep(&(struct timespec){.tv_nsec = until_ns - now < 999999999 ? (long)(until_ns - now) : 999999999}, NULL);
    return CUDA_SUCCESS;
}

API int cuGetErrorName(int code, const char **name) {
    *name = code == INVALID_VALUE        ? "CUDA_ERROR_INVALID_VALUE"
            : code == OUT_OF_MEMORY_CODE ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == NO_DEVICE          ? "CUDA_ERROR_NO_DEVICE"
            : code == INVALID_CONTEXT    ? "CUDA_ERROR_INVALID_CONTEXT"
                                         : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}
