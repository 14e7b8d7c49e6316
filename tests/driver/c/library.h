/* Inside the library: how a function begins, and what a device handle is. */
#pragma once

#include "fake.h"

#include <pthread.h>

/* The variants, oldest first. */
#define ANCIENT 1
#define OLD 2
#define ABI535 3
#define MODERN 4

#define API __attribute__((visibility("default")))

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

/* A handle names a GPU, or a slot of its MIG devices: after a reconfiguration the same pointer is whatever is in the slot then. */
typedef struct handle {
    char gpu[NAME_SIZE];
    int slot; /* -1: the GPU itself */
} const *nvmlDevice_t;

struct device {
    const struct node *node; /* keeps the two below alive */
    const struct gpu *gpu;
    const struct compute_instance *ci; /* NULL for a GPU */
};

/* Count the call, apply what the switches say, find the node or the device. Not SUCCESS: return it. */
nvmlReturn_t begin_node(const char *function, const struct node **node);
nvmlReturn_t begin_device(const char *function, nvmlDevice_t handle, struct device *device);
/* For functions that look a device up: what the switches say about it. */
nvmlReturn_t faults(const char *function, const char *gpu, const char *mig);
void count_call(const char *function);

/* The handle of a GPU or of one slot; one pointer for ever. */
nvmlDevice_t handle_of(const char *gpu, int slot);
bool initialized(void);

/* Is the switch on, for this MIG device, this GPU, or all? Its value, if asked for; uses up an "xN". */
bool switched(const char *name, const char *gpu, const char *mig, char *value, size_t size);
bool device_switched(const char *name, const struct device *device, char *value, size_t size);
/* May this process see what a GPU with MIG on, or an instance, holds? */
bool mig_shown(const struct device *device);
/* How many entries more the data call of a function has to see. */
unsigned growth(const char *function, const struct device *device);
/* A count that has nothing to do with what is there; `told`: of an array, too, it comes with SUCCESS. */
bool miscounts(const char *function, const char *gpu, const char *mig, unsigned *count, bool *told);

static inline void device_close(struct device *device) {
    if (device->node)
        node_close(device->node);
}

static inline void node_done(const struct node **node) {
    if (*node)
        node_close(*node);
}

/* `device` is what the handle means for the rest of the function. */
#define BEGIN(handle)                                                                                                  \
    __attribute__((cleanup(device_close))) struct device device = {0};                                                 \
    nvmlReturn_t begun = begin_device(__func__, handle, &device);                                                      \
    if (begun != NVML_SUCCESS)                                                                                         \
        return begun

#define BEGIN_NODE()                                                                                                   \
    __attribute__((cleanup(node_done))) const struct node *node = NULL;                                                \
    nvmlReturn_t begun = begin_node(__func__, &node);                                                                  \
    if (begun != NVML_SUCCESS)                                                                                         \
        return begun

#define REQUIRE(condition, error)                                                                                      \
    if (!(condition))                                                                                                  \
    return (error)
