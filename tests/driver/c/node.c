/* The `node` file: text in, one shared immutable picture out, read anew when the file has been replaced or edited. */
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PUSH(array, count) ((array) = realloc((array), ((count) + 1) * sizeof *(array)), &(array)[(count)++])

unsigned kinds_parse(const char *text) {
    return (strstr(text, "compute") ? COMPUTE : 0u) | (strstr(text, "graphics") ? GRAPHICS : 0u) |
           (strstr(text, "mps") ? MPS : 0u);
}

struct load load_parse(const char *line, struct load otherwise) {
    return (struct load){
        .sm = (unsigned)text_number(line, "sm", otherwise.sm),
        .mem = (unsigned)text_number(line, "mem", otherwise.mem),
        .enc = (unsigned)text_number(line, "enc", otherwise.enc),
        .dec = (unsigned)text_number(line, "dec", otherwise.dec),
        .jpg = (unsigned)text_number(line, "jpg", otherwise.jpg),
        .ofa = (unsigned)text_number(line, "ofa", otherwise.ofa),
    };
}

static enum mig_mode parse_mig(const char *value) {
    return strcmp(value, "on") == 0 ? MIG_ON : strcmp(value, "off") == 0 ? MIG_OFF : MIG_UNSUPPORTED;
}

static void parse_instance(struct gpu *gpu, const char *value) {
    struct gpu_instance *gi = PUSH(gpu->instances, gpu->instance_count);
    *gi = (struct gpu_instance){
        .id = (unsigned)text_number(value, "id", 0),
        .memory = text_number(value, "memory", 0),
        .reserved = text_number(value, "reserved", 0),
        .sms = (unsigned)text_number(value, "sms", 0),
        .slices = (unsigned)text_number(value, "slices", 0),
    };
    text_attribute(value, "profile", gi->profile, sizeof gi->profile);
}

static void parse_compute(struct gpu *gpu, const char *value) {
    struct compute_instance *ci = PUSH(gpu->computes, gpu->compute_count);
    *ci = (struct compute_instance){
        .slot = (unsigned)text_number(value, "slot", 0),
        .gi = (unsigned)text_number(value, "gi", 0),
        .id = (unsigned)text_number(value, "id", 0),
        .sms = (unsigned)text_number(value, "sms", 0),
        .slices = (unsigned)text_number(value, "slices", 0),
    };
    text_attribute(value, "uuid", ci->uuid, sizeof ci->uuid);
}

static void parse_process(struct gpu *gpu, const char *value) {
    struct injected_process *process = PUSH(gpu->processes, gpu->process_count);
    char word[64] = "compute";
    *process = (struct injected_process){
        .pid = (unsigned)text_number(value, "pid", 0),
        .bytes = text_number(value, "bytes", 0),
        .load = load_parse(value, (struct load){0}),
    };
    text_attribute(value, "kinds", word, sizeof word);
    process->kinds = kinds_parse(word);
    process->charged = !text_attribute(value, "charged", word, sizeof word) || strcmp(word, "no") != 0;
    text_attribute(value, "device", process->device, sizeof process->device);
}

static void parse_sample(struct gpu *gpu, const char *value) {
    struct injected_sample *sample = PUSH(gpu->samples, gpu->sample_count);
    char word[64];
    bool absolute = text_attribute(value, "time_us", word, sizeof word);
    *sample = (struct injected_sample){
        .pid = (unsigned)text_number(value, "pid", 0),
        .absolute = absolute,
        .time = text_number(value, absolute ? "time_us" : "age_us", 0),
        .load = load_parse(value, (struct load){0}),
    };
}

static void parse_field(struct gpu *gpu, const char *value) {
    struct field *field = PUSH(gpu->fields, gpu->field_count);
    *field = (struct field){
        .id = (unsigned)text_number(value, "id", 0),
        .scope = (unsigned)text_number(value, "scope", 0),
        .type = (unsigned)text_number(value, "type", 1),
        .result = (int)text_number(value, "result", 0),
        .silent = text_number(value, "silent", 0) != 0,
        .value = text_number(value, "value", 0),
    };
}

static void parse_gpu_key(struct gpu *gpu, const char *key, const char *value) {
#define X(name)                                                                                                        \
    if (strcmp(key, #name) == 0)                                                                                       \
        gpu->name = (struct number){.automatic = strcmp(value, "auto") == 0,                                           \
                                    .known = text_size(value, &gpu->name.value) || strcmp(value, "auto") == 0,         \
                                    .value = gpu->name.value};
    NUMBERS(X)
#undef X
    if (strcmp(key, "uuid") == 0)
        text_copy(gpu->uuid, sizeof gpu->uuid, value);
    else if (strcmp(key, "name") == 0)
        text_copy(gpu->name, sizeof gpu->name, value);
    else if (strcmp(key, "pci") == 0)
        text_copy(gpu->pci, sizeof gpu->pci, value);
    else if (strcmp(key, "mig") == 0)
        gpu->mig = gpu->mig_pending = parse_mig(value);
    else if (strcmp(key, "mig_pending") == 0)
        gpu->mig_pending = parse_mig(value);
    else if (strcmp(key, "gi") == 0)
        parse_instance(gpu, value);
    else if (strcmp(key, "ci") == 0)
        parse_compute(gpu, value);
    else if (strcmp(key, "process") == 0)
        parse_process(gpu, value);
    else if (strcmp(key, "sample") == 0)
        parse_sample(gpu, value);
    else if (strcmp(key, "field") == 0)
        parse_field(gpu, value);
    else if (strcmp(key, "vbios") == 0)
        text_copy(gpu->vbios, sizeof gpu->vbios, value);
    else if (strcmp(key, "banks") == 0)
        gpu->banks = (struct banks){
            .known = true,
            .max = (unsigned)text_number(value, "max", 0),
            .high = (unsigned)text_number(value, "high", 0),
            .partial = (unsigned)text_number(value, "partial", 0),
            .low = (unsigned)text_number(value, "low", 0),
            .none = (unsigned)text_number(value, "none", 0),
        };
}

static struct node *parse(char *text) {
    struct node *node = calloc(1, sizeof *node);
    node->sample_period = 138889;
    struct gpu *gpu = NULL;
    char *rest = text;
    for (char *line; (line = text_line(&rest));) {
        if (strcmp(line, "[gpu]") == 0) {
            gpu = PUSH(node->gpus, node->gpu_count);
            *gpu = (struct gpu){0};
            continue;
        }
        char *value = strstr(line, " = ");
        if (*line == '#' || !value)
            continue;
        *value = 0;
        value += 3;
        value += strspn(value, " ");
        if (gpu)
            parse_gpu_key(gpu, line, value);
        else if (strcmp(line, "driver") == 0)
            text_copy(node->driver, sizeof node->driver, value);
        else if (strcmp(line, "nvml") == 0)
            text_copy(node->nvml, sizeof node->nvml, value);
        else if (strcmp(line, "cuda") == 0)
            node->cuda = atoi(value);
        else if (strcmp(line, "cgroups") == 0)
            text_copy(node->cgroups, sizeof node->cgroups, value);
        else if (strcmp(line, "sample_period_us") == 0 && atoll(value) > 0)
            node->sample_period = (uint64_t)atoll(value);
    }
    return node;
}

/* The file that was read stays open, so that no other file can get its inode number while we compare by it. */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct node *newest;
static int newest_file = -1;
static struct stat newest_stat;

static bool same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void release(struct node *node) {
    if (!node || --node->references > 0)
        return;
    for (size_t i = 0; i < node->gpu_count; i++) {
        free(node->gpus[i].instances);
        free(node->gpus[i].computes);
        free(node->gpus[i].processes);
        free(node->gpus[i].samples);
        free(node->gpus[i].fields);
    }
    free(node->gpus);
    free(node);
}

const struct node *node_open(void) {
    const char *path = state_path("node");
    struct stat now;
    pthread_mutex_lock(&guard);
    if (!newest || (!still() && (stat(path, &now) != 0 || !same(&now, &newest_stat)))) {
        release(newest);
        newest = NULL;
        if (newest_file >= 0)
            close(newest_file);
        newest_file = open(path, O_RDONLY | O_CLOEXEC);
        char again[64];
        snprintf(again, sizeof again, "/proc/self/fd/%d", newest_file);
        char *text = text_read(again);
        if (text && fstat(newest_file, &newest_stat) == 0) {
            newest = parse(text);
            newest->references = 1;
        }
        free(text);
    }
    if (newest)
        newest->references++;
    struct node *node = newest;
    pthread_mutex_unlock(&guard);
    return node;
}

void node_close(const struct node *node) {
    pthread_mutex_lock(&guard);
    release((struct node *)node);
    pthread_mutex_unlock(&guard);
}

const struct gpu *node_gpu(const struct node *node, const char *uuid) {
    for (size_t i = 0; i < node->gpu_count; i++)
        if (strcmp(node->gpus[i].uuid, uuid) == 0)
            return &node->gpus[i];
    return NULL;
}

const struct compute_instance *gpu_compute(const struct gpu *gpu, const char *uuid) {
    for (size_t i = 0; gpu->mig == MIG_ON && i < gpu->compute_count; i++)
        if (strcmp(gpu->computes[i].uuid, uuid) == 0)
            return &gpu->computes[i];
    return NULL;
}

const struct gpu_instance *gpu_instance(const struct gpu *gpu, unsigned id) {
    for (size_t i = 0; i < gpu->instance_count; i++)
        if (gpu->instances[i].id == id)
            return &gpu->instances[i];
    return NULL;
}
