/* Files and words of the state folder. */
#define _GNU_SOURCE
#include "fake.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *state_path(const char *format, ...) {
    static _Thread_local char path[1024];
    const char *folder = getenv("FAKE_NVML_STATE");
    int length = snprintf(path, 512, "%s/", folder && *folder ? folder : "/run/fake-nvml");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path + length, sizeof path - (size_t)length, format, arguments);
    va_end(arguments);
    return path;
}

bool still(void) {
    static int known; /* 1: no, 2: yes */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!answer) {
        answer = getenv("FAKE_NVML_STILL") ? 2 : 1;
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer == 2;
}

char *text_read(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return NULL;
    size_t room = 4096, length = 0;
    char *text = malloc(room);
    ssize_t got;
    while ((got = read(file, text + length, room - length - 1)) > 0) {
        length += (size_t)got;
        if (room - length < 2)
            text = realloc(text, room *= 2);
    }
    close(file);
    text[length] = 0;
    return text;
}

bool text_replace(const char *path, const char *text) {
    char target[1024], draft[1100];
    text_copy(target, sizeof target, path);
    const char *name = strrchr(target, '/') + 1;
    snprintf(draft, sizeof draft, "%.*s.%s.%d", (int)(name - target), target, name, (int)getpid());
    int file = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        return false;
    fchmod(file, 0666);
    bool written = write(file, text, strlen(text)) == (ssize_t)strlen(text);
    close(file);
    return written && rename(draft, target) == 0;
}

void text_copy(char *target, size_t size, const char *source) {
    size_t length = strnlen(source, size - 1);
    memmove(target, source, length);
    target[length] = 0;
}

bool text_attribute(const char *line, const char *key, char *value, size_t size) {
    size_t length = strlen(key);
    for (const char *word = line; *word;) {
        word += strspn(word, " \t\n");
        size_t end = strcspn(word, " \t\n");
        if (end > length && word[length] == '=' && strncmp(word, key, length) == 0) {
            size_t wanted = end - length - 1;
            text_copy(value, wanted + 1 < size ? wanted + 1 : size, word + length + 1);
            return true;
        }
        word += end;
    }
    return false;
}

uint64_t text_number(const char *line, const char *key, uint64_t otherwise) {
    char value[64];
    uint64_t number;
    if (!text_attribute(line, key, value, sizeof value))
        return otherwise;
    if (strcmp(value, "unknown") == 0)
        return UNKNOWN_BYTES;
    return text_size(value, &number) ? number : otherwise;
}

bool text_size(const char *text, uint64_t *bytes) {
    static const struct {
        const char *suffix;
        int shift;
    } units[] = {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    if (!isdigit((unsigned char)*text))
        return false;
    char *end;
    uint64_t number = strtoull(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].suffix) == 0) {
            *bytes = number << units[i].shift;
            return true;
        }
    return false;
}

char *text_line(char **rest) {
    if (!*rest || !**rest)
        return NULL;
    char *line = strsep(rest, "\n");
    line += strspn(line, " \t");
    for (size_t length = strlen(line); length && isspace((unsigned char)line[length - 1]);)
        line[--length] = 0;
    return line;
}
