// A process that has device nodes open, whether a driver stands behind them or not: O_PATH asks none. What others see is
// the same: a link in /proc/<pid>/fd, and through it the node's number.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        if (open(words[at], O_PATH) < 0) {
            perror(words[at]);
            return 1;
        }
    }
    return pause();
}
